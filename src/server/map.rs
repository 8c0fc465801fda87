//! Which roles run together on which core, and on which processor: the setting `engine.map`.
//!
//! Cores are separated by `|`, the roles of one by `+`, and `@N` names its processor: `order@2 | ingress@3 | ingress@4`,
//! or all on one: `order+ingress`. `house` (the log) is the main thread, so it stands alone: `order | ingress | house@0`.
//!
//! **Why one line.** The whole machine is seen at once, as it is printed at start; keys for each role could contradict
//! each other.
//! **Invariants** of a map: exactly one `order`; 1 to [`INGRESS_MAX`] `ingress`; `house` at most once, alone.
//! **Limits**: [`INGRESS_MAX`], [`CPU_MAX`]. **Not here**: starting them (`assembly`).
use std::fmt;

use super::value::{Field, Value};

/// Most ingress roles, each with a socket of its own.
pub const INGRESS_MAX: usize = 8;
/// Highest number of a processor.
pub const CPU_MAX: usize = 1_023;

/// A role that has a place in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The protocol and the peer socket.
    Order,
    /// A client socket.
    Ingress,
    /// The log, readiness and signals.
    House,
}

impl Part {
    const ALL: [Self; 3] = [Self::Order, Self::Ingress, Self::House];

    /// Its name in the map and the table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Ingress => "ingress",
            Self::House => "house",
        }
    }
}

/// One core: who runs there, and where it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its roles, in the order of their turns: `order` first, so that what it tells is sent in the same round.
    pub roles: Vec<Part>,
    /// The processor; `None`: any.
    pub cpu: Option<usize>,
}

/// A checked map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map(Vec<Place>);

impl Map {
    /// What suits a machine whose processors, `cpus` of them, are shared by `servers` servers of the cluster: two cores where
    /// each has a processor and one is left for the system, a second ingress where there are eight for each server.
    #[must_use]
    pub fn auto(cpus: usize, servers: usize) -> Self {
        let place = |roles: &[Part]| Place { roles: roles.to_vec(), cpu: None };
        let apart = [place(&[Part::Order]), place(&[Part::Ingress]), place(&[Part::Ingress])];
        match cpus / servers.max(1) {
            8.. => Self(apart.to_vec()),
            2.. if cpus > 2 * servers => Self(apart[..2].to_vec()),
            _ => Self(vec![place(&[Part::Order, Part::Ingress])]),
        }
    }

    /// Reads a map; `None` if it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let places: Vec<Place> = text.split('|').map(place).collect::<Option<_>>()?;
        let count = |part| places.iter().flat_map(|place| &place.roles).filter(|role| **role == part).count();
        let alone = places.iter().all(|place| place.roles.len() == 1 || !place.roles.contains(&Part::House));
        let counts = (count(Part::Order), count(Part::Ingress), count(Part::House));
        (alone && matches!(counts, (1, 1..=INGRESS_MAX, 0 | 1))).then_some(Self(places))
    }

    /// The cores that poll roles: all but that of `house`.
    pub fn cores(&self) -> impl Iterator<Item = &Place> {
        self.0.iter().filter(|place| place.roles != [Part::House])
    }

    /// How many ingress roles there are.
    #[must_use]
    pub fn ingresses(&self) -> usize {
        self.0.iter().flat_map(|place| &place.roles).filter(|role| **role == Part::Ingress).count()
    }

    /// The processor of `house`.
    #[must_use]
    pub fn house_cpu(&self) -> Option<usize> {
        self.0.iter().find(|place| place.roles == [Part::House])?.cpu
    }
}

fn place(text: &str) -> Option<Place> {
    let (roles, cpu) = match text.split_once('@') {
        None => (text, None),
        Some((roles, cpu)) => {
            let cpu = cpu.trim();
            let digits = !cpu.is_empty() && cpu.bytes().all(|byte| byte.is_ascii_digit());
            (roles, Some(cpu.parse().ok().filter(|cpu| digits && *cpu <= CPU_MAX)?))
        }
    };
    let role = |name: &str| Part::ALL.into_iter().find(|part| part.name() == name.trim());
    let mut roles: Vec<Part> = roles.split('+').map(role).collect::<Option<_>>()?;
    roles.sort_by_key(|role| *role != Part::Order);
    Some(Place { roles, cpu })
}

impl fmt::Display for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, place) in self.0.iter().enumerate() {
            let names: Vec<_> = place.roles.iter().map(|role| role.name()).collect();
            write!(f, "{}{}", if at == 0 { "" } else { " | " }, names.join("+"))?;
            place.cpu.map_or(Ok(()), |cpu| write!(f, "@{cpu}"))?;
        }
        Ok(())
    }
}

/// `None` is `auto`.
impl Field for Option<Map> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Word(word) if word == "auto" => Some(None),
            Value::Word(word) => Map::parse(word).map(Some),
            Value::Number(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Map;

    #[test]
    fn maps_read_back_as_written() {
        for text in ["order+ingress", "order@2 | ingress@3 | ingress@4", "order+ingress+ingress@0 | house@1"] {
            assert_eq!(Map::parse(text).unwrap().to_string(), text);
        }
        let map = Map::parse(" ingress @ 1|order+ingress|house@7").unwrap();
        assert_eq!((map.cores().count(), map.ingresses(), map.house_cpu()), (2, 2, Some(7)));
    }

    #[test]
    fn what_cannot_run_is_no_map() {
        let many = format!("order{}", "+ingress".repeat(9));
        let wrong = ["", "order", "ingress", "order+order+ingress", "order+ingress+house", "order|ingress@", &many];
        for text in
            wrong.into_iter().chain(["order|ingress@-1", "order|ingress@1024", "order|clerk", "order|ingress||"])
        {
            assert_eq!(Map::parse(text), None, "{text}");
        }
    }

    #[test]
    fn automatic_map_splits_only_where_processors_are_left() {
        let auto = |cpus, servers| Map::auto(cpus, servers).to_string();
        assert_eq!(auto(1, 1), "order+ingress");
        assert_eq!(auto(2, 1), "order+ingress");
        assert_eq!(auto(3, 1), "order | ingress");
        assert_eq!(auto(6, 3), "order+ingress");
        assert_eq!(auto(7, 3), "order | ingress");
        assert_eq!(auto(8, 1), "order | ingress | ingress");
    }
}
