//! The `ordain` binary: it only dispatches; the commands are in [`ordain::cli`].

fn main() -> std::process::ExitCode {
    ordain::cli::main()
}
