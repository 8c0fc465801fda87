//! Sessions: opened at servers, each with a window of request numbers.
//!
//! **Why a window by number.** The ledger forgets a request number once one `window` higher was ordered. So a number is
//! used only when the one `window` below it is finished, whatever became of those between.
//! **Invariants.** A session with room is in `ready` or is `current`, exactly once.
//! **Not here**: sending ([`super::Machine`]).

use std::collections::{HashMap, VecDeque};

use super::flight::{NONE, place, slot};
use crate::protocol::{LocalTime, OrderNo, RequestNo, ServerId, SessionId, WINDOW};

/// How far a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// To be asked for.
    Wanted,
    /// Asked for with this nonce.
    Opening {
        nonce: u64,
        sent: LocalTime,
    },
    Open,
    /// A server does not know it any more; it is opened anew once its last request is done.
    Lost,
}

#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) state: State,
    /// The server its requests are first asked of.
    pub(super) home: ServerId,
    /// The server it is to be opened at.
    pub(super) opens_at: ServerId,
    next: u64,
    window: u64,
    in_flight: u64,
    is_ready: bool,
}

/// All sessions of a client.
#[derive(Debug)]
pub(super) struct Sessions {
    all: Vec<Session>,
    by_id: HashMap<SessionId, u32>,
    /// Slots of requests in flight, by session and request number modulo [`WINDOW`].
    slots: Box<[u32]>,
    /// Order numbers of finished requests, likewise; zero: none was told.
    told: Box<[u64]>,
    ready: VecDeque<u32>,
    current: Option<u32>,
    open: usize,
}

impl Sessions {
    pub(super) fn new(homes: impl ExactSizeIterator<Item = ServerId>) -> Self {
        let count = homes.len();
        let all = homes.map(|home| Session {
            id: SessionId::default(),
            state: State::Wanted,
            home,
            opens_at: home,
            next: 1,
            window: 1,
            in_flight: 0,
            is_ready: false,
        });
        Self {
            all: all.collect(),
            by_id: HashMap::with_capacity(2 * count),
            slots: (0..count * WINDOW).map(|_| NONE).collect(),
            told: (0..count * WINDOW).map(|_| 0).collect(),
            ready: VecDeque::with_capacity(count),
            current: None,
            open: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
    pub(super) fn open(&self) -> usize {
        self.open
    }
    pub(super) fn get(&self, session: u32) -> &Session {
        &self.all[place(session)]
    }
    pub(super) fn get_mut(&mut self, session: u32) -> &mut Session {
        &mut self.all[place(session)]
    }
    pub(super) fn find(&self, id: SessionId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    fn at(session: u32, request: u64) -> usize {
        place(session) * WINDOW + usize::try_from(request % wide(WINDOW)).expect("below WINDOW")
    }

    /// Whether the session's next number may be used.
    fn has_room(&self, session: u32) -> bool {
        let it = self.get(session);
        let below = it.next.saturating_sub(it.window);
        it.state == State::Open && it.in_flight < it.window && self.slots[Self::at(session, below)] == NONE
    }

    /// A session with room and its next request number. The same one again until [`Sessions::rotate`], so that requests
    /// of one turn share a datagram.
    pub(super) fn next(&mut self) -> Option<(u32, RequestNo)> {
        loop {
            let session = self.current.or_else(|| self.ready.pop_front())?;
            self.current = None;
            if self.has_room(session) {
                self.current = Some(session);
                return Some((session, RequestNo::new(self.get(session).next)));
            }
            self.get_mut(session).is_ready = false;
        }
    }

    /// Notes that the request of [`Sessions::next`] is in flight in this slot.
    pub(super) fn depart(&mut self, session: u32, request: RequestNo, flight: u32) {
        let at = Self::at(session, request.get());
        (self.slots[at], self.told[at]) = (flight, 0);
        let it = self.get_mut(session);
        it.next += 1;
        it.in_flight += 1;
    }

    /// The turn is over: another session comes first in the next.
    pub(super) fn rotate(&mut self) {
        self.ready.extend(self.current.take());
    }

    /// Notes that a request is finished, with the number it was told, if any.
    pub(super) fn arrive(&mut self, session: u32, request: RequestNo, order: OrderNo) {
        let at = Self::at(session, request.get());
        (self.slots[at], self.told[at]) = (NONE, order.get());
        self.get_mut(session).in_flight -= 1;
        self.offer(session);
    }

    fn offer(&mut self, session: u32) {
        if !self.get(session).is_ready && self.has_room(session) {
            self.get_mut(session).is_ready = true;
            self.ready.push_back(session);
        }
    }

    /// The slot of a request in flight.
    pub(super) fn flight(&self, session: u32, request: RequestNo) -> Option<u32> {
        if !self.is_recent(session, request) {
            return None;
        }
        Some(self.slots[Self::at(session, request.get())]).filter(|flight| *flight != NONE)
    }

    /// Whether the number is the newest of its slot.
    fn is_recent(&self, session: u32, request: RequestNo) -> bool {
        let next = self.get(session).next;
        request.get() > 0 && request.get() < next && request.get() + wide(WINDOW) >= next
    }

    /// Another answer to a finished request: the number it was told before, if it is remembered. Notes this one if none.
    pub(super) fn told(&mut self, session: u32, request: RequestNo, order: OrderNo) -> Option<OrderNo> {
        if !self.is_recent(session, request) {
            return None;
        }
        let told = &mut self.told[Self::at(session, request.get())];
        if *told == 0 {
            *told = order.get();
        }
        Some(OrderNo::new(*told))
    }

    /// A server has opened it.
    pub(super) fn opened(&mut self, session: u32, id: SessionId, window: u16) {
        self.by_id.insert(id, session);
        self.open += 1;
        let at = place(session) * WINDOW;
        self.told[at..at + WINDOW].fill(0);
        let it = self.get_mut(session);
        (it.id, it.state, it.next) = (id, State::Open, 1);
        it.window = u64::from(window).clamp(1, wide(WINDOW));
        self.offer(session);
    }

    /// It is not known any more; true if it can be asked for anew at once.
    pub(super) fn lost(&mut self, session: u32) -> bool {
        if self.get(session).state == State::Open {
            self.open -= 1;
            self.get_mut(session).state = State::Lost;
        }
        self.renewable(session)
    }

    /// Whether a lost session has no request left, and forgets its id if so.
    pub(super) fn renewable(&mut self, session: u32) -> bool {
        let it = self.get_mut(session);
        if it.state != State::Lost || it.in_flight > 0 {
            return false;
        }
        it.state = State::Wanted;
        let id = it.id;
        self.by_id.remove(&id);
        true
    }

    pub(super) fn all(&self) -> std::ops::Range<u32> {
        0..slot(self.all.len())
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(window: u16) -> Sessions {
        let mut sessions = Sessions::new(std::iter::once(ServerId::default()));
        sessions.opened(0, SessionId { nonce: 5, ..SessionId::default() }, window);
        sessions
    }

    #[test]
    fn number_is_used_only_when_the_one_a_window_below_is_finished() {
        for window in [1_u16, 10, 64] {
            let mut sessions = one(window);
            for request in 1..=u64::from(window) {
                assert_eq!(sessions.next(), Some((0, RequestNo::new(request))));
                sessions.depart(0, RequestNo::new(request), 7);
            }
            assert_eq!(sessions.next(), None);
            if window > 1 {
                sessions.arrive(0, RequestNo::new(2), OrderNo::new(1));
                assert_eq!(sessions.next(), None, "request 1 is not finished");
            }
            sessions.arrive(0, RequestNo::new(1), OrderNo::new(2));
            assert_eq!(sessions.next(), Some((0, RequestNo::new(u64::from(window) + 1))));
        }
    }

    #[test]
    fn finished_requests_are_remembered_for_a_window() {
        let mut sessions = one(64);
        for request in 1..=100 {
            sessions.next().unwrap();
            sessions.depart(0, RequestNo::new(request), 7);
            sessions.arrive(0, RequestNo::new(request), OrderNo::new(1_000 + request));
        }
        assert_eq!(sessions.flight(0, RequestNo::new(100)), None);
        assert_eq!(sessions.told(0, RequestNo::new(100), OrderNo::new(9)), Some(OrderNo::new(1_100)));
        assert_eq!(sessions.told(0, RequestNo::new(37), OrderNo::new(9)), Some(OrderNo::new(1_037)));
        assert_eq!(sessions.told(0, RequestNo::new(36), OrderNo::new(9)), None);
        assert_eq!(sessions.told(0, RequestNo::new(101), OrderNo::new(9)), None);
    }

    #[test]
    fn lost_session_is_renewed_after_its_last_request() {
        let mut sessions = one(4);
        sessions.next().unwrap();
        sessions.depart(0, RequestNo::new(1), 7);
        assert!(!sessions.lost(0));
        assert_eq!(sessions.next(), None);
        sessions.arrive(0, RequestNo::new(1), OrderNo::default());
        assert!(sessions.renewable(0));
        assert_eq!((sessions.open(), sessions.get(0).state), (0, State::Wanted));
    }
}
