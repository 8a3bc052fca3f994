//! Sessions of TLS to resume: those of one configuration, by the server's name and port.
//!
//! A connection that resumes a session verifies no certificate, and gets tickets for the next one. So a chain of connections
//! could go on for ever without a look at a certificate; RFC 8446 section 4.6.1 recommends a limit. Each session carries the
//! time of the last connection that did not offer one, which has verified the server, and is dropped when that is too old.
//!
//! rustls asks a store by the name alone, and does not tell it whether a session was resumed. So each connection has a store
//! of its own in front of the common one: it adds the port, and the time. If a connection was given a session, the sessions
//! that it gets have the time of that one, although the server may have declined it: that errs towards verifying sooner.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use rustls::client::{ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, NamedGroup};

use crate::io::lock::locked;

/// Sessions of one server, and of all. A ticket has 64 KiB at most, for rustls takes no longer message in a handshake, and
/// so have the certificates of the server, which are kept with it: 8 MiB in all.
const OF_SERVER: usize = 8;
const OF_ALL: usize = 64;
/// Servers of which the group for the key exchange is known.
const GROUPS: usize = 32;

/// A ClientHello that is longer because of its ticket is not sent: servers have limits, Java's of 32 KiB for instance.
const LONGEST_HELLO: usize = 16 * 1024;

enum Session {
    Tls12(Tls12ClientSessionValue),
    Tls13(Tls13ClientSessionValue),
}

struct Ticket {
    name: ServerName<'static>,
    port: u16,
    verified: SystemTime,
    session: Session,
}

#[derive(Default)]
struct Kept {
    /// Oldest first.
    tickets: VecDeque<Ticket>,
    groups: VecDeque<(ServerName<'static>, u16, NamedGroup)>,
}

/// A configuration, and the sessions to resume with it.
pub struct Client {
    config: ClientConfig,
    kept: Arc<Mutex<Kept>>,
    resume_for: Duration,
}

impl Client {
    /// `resume_for`: how old the last verification may be; zero resumes nothing.
    pub fn new(config: ClientConfig, resume_for: Duration) -> Self {
        Client { config, kept: Arc::default(), resume_for }
    }

    /// Makes a connection to this port; 0 resumes nothing. `new` makes one, and returns the length of its ClientHello.
    pub fn connect<T>(
        &self,
        port: u16,
        new: impl Fn(Arc<ClientConfig>) -> Result<(T, usize), rustls::Error>,
    ) -> Result<T, String> {
        let with = |resumption| {
            let mut config = self.config.clone();
            config.resumption = resumption;
            new(Arc::new(config)).map_err(|error| error.to_string())
        };
        if port != 0 && !self.resume_for.is_zero() {
            let (connection, hello) = with(Resumption::store(Arc::new(Chain {
                kept: self.kept.clone(),
                port,
                resume_for: self.resume_for,
                verified: Mutex::new(SystemTime::now()),
            })))?;
            if hello <= LONGEST_HELLO {
                return Ok(connection);
            }
        }
        Ok(with(Resumption::disabled())?.0)
    }
}

/// The store of one connection.
struct Chain {
    kept: Arc<Mutex<Kept>>,
    port: u16,
    resume_for: Duration,
    verified: Mutex<SystemTime>,
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chain") // and no secrets
    }
}

impl Chain {
    /// Forgets the sessions that are too old. They are, too, if the clock was set back since.
    fn fresh(&self) -> MutexGuard<'_, Kept> {
        let mut kept = locked(&self.kept);
        kept.tickets.retain(|ticket| ticket.verified.elapsed().is_ok_and(|age| age < self.resume_for));
        kept
    }

    fn is_of(&self, ticket: &Ticket, name: &ServerName<'_>) -> bool {
        ticket.port == self.port && ticket.name == *name
    }

    fn keep(&self, name: ServerName<'static>, session: Session) {
        let tickets = &mut self.fresh().tickets;
        let mut same = (0..tickets.len()).filter(|&index| self.is_of(&tickets[index], &name));
        let oldest = same.next();
        let surplus = if same.count() + 1 >= OF_SERVER { oldest } else { None };
        let surplus = surplus.or((tickets.len() >= OF_ALL).then_some(0));
        if let Some(index) = surplus {
            tickets.remove(index);
        }
        tickets.push_back(Ticket { name, port: self.port, verified: *locked(&self.verified), session });
    }

    /// The latest session that `is_wanted`. A ticket of TLS 1.3 is used once (RFC 8446 appendix C.4).
    fn find(&self, name: &ServerName<'_>, is_wanted: fn(&Session) -> bool) -> Option<Session> {
        let tickets = &mut self.fresh().tickets;
        let index = tickets.iter().rposition(|ticket| self.is_of(ticket, name) && is_wanted(&ticket.session))?;
        *locked(&self.verified) = tickets[index].verified;
        match &tickets[index].session {
            Session::Tls12(session) => Some(Session::Tls12(session.clone())),
            Session::Tls13(_) => tickets.remove(index).map(|ticket| ticket.session),
        }
    }

    fn forget_tls12(&self, name: &ServerName<'_>) {
        let is_tls12 = |ticket: &Ticket| matches!(ticket.session, Session::Tls12(_));
        self.fresh().tickets.retain(|ticket| !(is_tls12(ticket) && self.is_of(ticket, name)));
    }
}

impl ClientSessionStore for Chain {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        let groups = &mut locked(&self.kept).groups;
        groups.retain(|(of, port, _)| (of, *port) != (&name, self.port));
        if groups.len() == GROUPS {
            groups.pop_front();
        }
        groups.push_back((name, self.port, group));
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        let groups = &locked(&self.kept).groups;
        groups.iter().find(|(of, port, _)| (of, *port) == (name, self.port)).map(|(.., group)| *group)
    }

    fn set_tls12_session(&self, name: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.forget_tls12(&name);
        self.keep(name, Session::Tls12(session));
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        match self.find(name, |session| matches!(session, Session::Tls12(_)))? {
            Session::Tls12(session) => Some(session),
            Session::Tls13(_) => None,
        }
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        self.forget_tls12(name);
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, session: Tls13ClientSessionValue) {
        self.keep(name, Session::Tls13(session));
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        match self.find(name, |session| matches!(session, Session::Tls13(_)))? {
            Session::Tls13(session) => Some(session),
            Session::Tls12(_) => None,
        }
    }
}
