//! Genesis: how an instance begins, and how a process without a place in one is told so (section 10).
//!
//! **Why all n.** Only all n can know that nothing is remembered. A fresh server pledges its incarnation to the first
//! incarnation of the coordinator (the lowest place) that asks, and to no other while it lives under that incarnation;
//! with all pledges the coordinator forms `C_0`. Two first configurations can so never share an incarnation, and the
//! second forms only when every incarnation of the first is gone.
//! **Here refined**: a pledge is renewed by every HELLO of the incarnation it was given to, so a cluster whose last host
//! comes minutes later forms without anybody changing its incarnation; not renewed for [`PLEDGE_TTL`], the process draws
//! a new incarnation (which is dying, to all others).
//! **Limits**: one HELLO or CONFIG_REQ every [`ASK_EVERY`]. **Not here**: joining an instance that lives.
use super::acks::Acks;
use super::config::{Configuration, Row};
use super::machine::{Core, Event, Now, Outbox, Sender, To};
use super::{Epoch, Incarnation, Instance, LocalTime, SERVERS_MAX, ServerId, Span};
use crate::wire::Few;
use crate::wire::config::{ConfigBody, ConfigRow, RowState};
use crate::wire::peer::{ConfigRequest, Exists, Hello, PeerMessage, Pledge, SettingsMismatch, messages};

/// How often a process without a configuration asks.
pub const ASK_EVERY: Span = Span::millis(50);
/// A pledge that its coordinator has not renewed for so long is given up, and the incarnation with it.
pub const PLEDGE_TTL: Span = Span::secs(5);

/// What a process without a configuration remembers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Genesis {
    pledged: Option<(Incarnation, LocalTime)>,
    pledges: [Option<(Incarnation, LocalTime)>; SERVERS_MAX],
    ask_due: LocalTime,
    not_named: Option<Instance>,
}

impl<W: Copy> Core<W> {
    fn coordinates(&self) -> bool {
        self.settings.me.place() == 0
    }

    /// Which peers have not pledged yet (at the coordinator), or not been heard (elsewhere); for the log.
    pub fn awaited(&self) -> impl Iterator<Item = ServerId> + '_ {
        (0..self.settings.servers).filter_map(ServerId::from_place).filter(|server| {
            let place = server.place();
            *server != self.settings.me
                && if self.coordinates() {
                    self.genesis.pledges[place].is_none()
                } else {
                    place == 0 && self.genesis.pledged.is_none()
                }
        })
    }

    /// The living instance in which this process has no place, as far as it was told.
    #[must_use]
    pub fn not_named(&self) -> Option<Instance> {
        self.genesis.not_named
    }

    /// A round without a configuration.
    pub(super) fn genesis_turn(&mut self, now: Now, out: &mut impl Outbox<W>) -> LocalTime {
        if self.coordinates() {
            // A pledge not repeated of late may have been given up.
            let stale = |at: LocalTime| now.local.since(at).get() * 2 > PLEDGE_TTL.get();
            for pledge in &mut self.genesis.pledges {
                *pledge = pledge.filter(|(_, at)| !stale(*at));
            }
            self.form(now, out);
        } else if let Some((_, renewed)) = self.genesis.pledged
            && now.local.since(renewed) >= PLEDGE_TTL
        {
            self.incarnation = Incarnation::new(self.rng.u64(1..));
            self.genesis.pledged = None;
        }
        if self.configuration.is_some() {
            return self.turn(now, false, out);
        }
        if now.local >= self.genesis.ask_due {
            self.genesis.ask_due = now.local.plus(ASK_EVERY);
            let hello = Hello { inc: self.incarnation, terms: self.settings.terms };
            let coordinates = self.coordinates();
            self.send(To::Others, out, |body, _| {
                let fits = if coordinates { hello.put(body) } else { ConfigRequest { have: None }.put(body) };
                assert!(fits.is_ok(), "a HELLO must fit a datagram");
            });
        }
        self.genesis.ask_due
    }

    /// With the pledges of all others: `C_0` of a random instance, these incarnations, an open stream each.
    fn form(&mut self, now: Now, out: &mut impl Outbox<W>) {
        let mut incarnations = [self.incarnation; SERVERS_MAX];
        for (place, incarnation) in incarnations.iter_mut().enumerate().take(self.settings.servers).skip(1) {
            let Some((pledged, _)) = self.genesis.pledges[place] else { return };
            *incarnation = pledged;
        }
        let instance = Instance::new(self.rng.u64(1..));
        let formed = Configuration::genesis(instance, &incarnations[..self.settings.servers]);
        let Some(formed) = formed else { return };
        self.enter(now, formed, out);
        let config = config_body(&formed);
        self.send(To::Others, out, |body, _| {
            let fits = config.put(body);
            assert!(fits.is_ok(), "a CONFIG must fit a datagram");
        });
    }

    /// Enters a first configuration that names this process.
    fn enter(&mut self, now: Now, configuration: Configuration, out: &mut impl Outbox<W>) {
        assert!(self.configuration.is_none(), "a first configuration is entered once");
        assert_eq!(
            configuration.incarnation(self.settings.me),
            Some(self.incarnation),
            "only a configuration that names this process may be entered"
        );
        self.own = configuration.open_row(self.settings.me);
        self.acks = Some(Acks::new(&configuration));
        self.configuration = Some(configuration);
        self.genesis = Genesis::default();
        self.spoken.at = now.local;
        out.event(Event::Entered { epoch: configuration.epoch, instance: configuration.instance });
    }

    /// A datagram of another instance, or before this process has one. Only what concerns genesis is read.
    pub(super) fn foreign_datagram(&mut self, now: Now, from: Sender, body: &[u8], out: &mut impl Outbox<W>) {
        for message in messages(body) {
            let Ok(message) = message else {
                self.counters.messages_refused += 1;
                return;
            };
            match message {
                PeerMessage::Hello(hello) => self.hello(now, from, &hello, out),
                PeerMessage::Pledge(pledge) => self.pledge(now, from, &pledge, out),
                PeerMessage::ConfigRequest(_) => self.tell_configuration(from, out),
                PeerMessage::Config(config) => self.config(now, from, &config.body(), out),
                PeerMessage::Exists(exists) => self.exists(from, &exists, out),
                PeerMessage::SettingsMismatch(differs) => out.event(Event::SettingsDiffer {
                    server: from.server,
                    index: differs.index,
                    mine: differs.yours,
                    theirs: differs.mine,
                }),
                _ => self.counters.other_instance += 1,
            }
        }
    }

    /// Tells the sender, and the log, if its terms are not ours.
    fn terms_differ(&mut self, from: Sender, terms: &crate::wire::peer::Terms, out: &mut impl Outbox<W>) -> bool {
        let Some(differs) = self.settings.terms.mismatch(terms) else { return false };
        let SettingsMismatch { mine, yours, index } = differs;
        out.event(Event::SettingsDiffer { server: from.server, index, mine, theirs: yours });
        self.send(To::One(from.server), out, |body, _| {
            let fits = differs.put(body);
            assert!(fits.is_ok(), "a mismatch must fit a datagram");
        });
        true
    }

    /// HELLO: a fresh server pledges to the first incarnation of the coordinator that asks, and to no other while it
    /// lives under this incarnation. Whoever has entered an epoch answers with its existence.
    fn hello(&mut self, now: Now, from: Sender, hello: &Hello, out: &mut impl Outbox<W>) {
        if self.terms_differ(from, &hello.terms, out) {
            return;
        }
        if self.configuration.is_some() {
            self.tell_configuration(from, out);
            return;
        }
        if from.server.place() != 0 || hello.inc != from.incarnation {
            self.counters.messages_refused += 1;
            return;
        }
        let (pledged, _) = *self.genesis.pledged.get_or_insert((hello.inc, now.local));
        if pledged != hello.inc {
            return;
        }
        self.genesis.pledged = Some((pledged, now.local));
        let pledge = Pledge { inc: self.incarnation, to: pledged, terms: self.settings.terms };
        self.send(To::One(from.server), out, |body, _| {
            let fits = pledge.put(body);
            assert!(fits.is_ok(), "a PLEDGE must fit a datagram");
        });
    }

    fn pledge(&mut self, now: Now, from: Sender, pledge: &Pledge, out: &mut impl Outbox<W>) {
        if self.terms_differ(from, &pledge.terms, out) {
            return;
        }
        let mine = self.coordinates() && pledge.to == self.incarnation && pledge.inc == from.incarnation;
        if self.configuration.is_some() || !mine {
            return;
        }
        self.genesis.pledges[from.server.place()] = Some((pledge.inc, now.local));
        self.form(now, out);
    }

    /// Tells a process of another instance, or of none, what exists: the configuration, and who stands at its place.
    pub(super) fn tell_configuration(&mut self, from: Sender, out: &mut impl Outbox<W>) {
        let Some(configuration) = self.configuration else { return };
        let standing = configuration.incarnation(from.server).unwrap_or_default();
        if standing != from.incarnation {
            out.event(Event::PeerNotNamed { server: from.server, incarnation: from.incarnation });
        }
        let exists = Exists { instance: configuration.instance, standing, epoch: configuration.epoch };
        let config = config_body(&configuration);
        self.send(To::One(from.server), out, |body, _| {
            let fits = exists.put(body).and_then(|()| config.put(body));
            assert!(fits.is_ok(), "an EXISTS and a CONFIG must fit a datagram");
        });
    }

    /// CONFIG: a fresh process enters by it only a `C_0` that names its incarnation.
    fn config(&mut self, now: Now, from: Sender, config: &ConfigBody, out: &mut impl Outbox<W>) {
        let named = config.incs.as_slice().get(self.settings.me.place()) == Some(&self.incarnation);
        let fits = config.epoch == Epoch::new(0) && config.incs.len() == self.settings.servers;
        if self.configuration.is_some() || !named || !fits {
            return;
        }
        let Some(configuration) = configuration_of(config) else {
            self.counters.messages_refused += 1;
            return;
        };
        // What is entered must be what genesis makes, row by row: streams are laid out for it.
        let expected = Configuration::genesis(config.instance, config.incs.as_slice());
        if Some(configuration) != expected {
            out.event(Event::PeerDefect { server: from.server });
            return;
        }
        self.enter(now, configuration, out);
    }

    fn exists(&mut self, from: Sender, exists: &Exists, out: &mut impl Outbox<W>) {
        if self.configuration.is_some() {
            self.counters.other_instance += 1;
            return;
        }
        if exists.standing == self.incarnation || from.instance != exists.instance {
            return;
        }
        self.genesis.not_named = Some(exists.instance);
        out.event(Event::NotNamed { instance: exists.instance, standing: exists.standing });
    }
}

/// As it travels.
fn config_body(configuration: &Configuration) -> ConfigBody {
    let mut rows = Few::new();
    for row in configuration.rows() {
        let state = if row.open { RowState::Open } else { RowState::Closed };
        let fits = rows.push(ConfigRow { stream: row.stream, state, ts0: row.ts0, base: row.base });
        assert!(fits.is_ok(), "more rows than a configuration has");
    }
    ConfigBody {
        epoch: configuration.epoch,
        instance: configuration.instance,
        incs: Few::from_slice(configuration.incarnations()).unwrap_or_default(),
        rows,
    }
}

fn configuration_of(body: &ConfigBody) -> Option<Configuration> {
    let mut rows = [Row::default(); super::ROWS_MAX];
    for (to, from) in rows.iter_mut().zip(body.rows.as_slice()) {
        *to = Row { stream: from.stream, ts0: from.ts0, open: from.state == RowState::Open, base: from.base };
    }
    Configuration::new(body.epoch, body.instance, body.incs.as_slice(), rows.get(..body.rows.len())?)
}
