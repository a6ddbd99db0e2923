//! Every interleaving of those who share one ticket: the host that owns the call, one who approves from another process, one who
//! denies from a third, time that runs out, crashes, and recovery. The steps are the pure rules themselves; a commit is atomic, and
//! nothing else is.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stateright::{Checker, Model, Property};

use super::state::{CallState, Event};
use super::ticket::{Answered, Claim, Ticket};
use crate::ids::TicketId;

const DEADLINE: u64 = 2;

fn at(time: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(time)
}

/// One more, as far as that is of interest.
fn more(count: u8) -> u8 {
    count.saturating_add(1).min(3)
}

/// A process that can go on with the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Party {
    /// The host that made the call, with a human at its terminal.
    Owner,
    /// `approve`.
    Approver,
    /// `deny`.
    Denier,
}

const PARTIES: [Party; 3] = [Party::Owner, Party::Approver, Party::Denier];

/// Where a process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stands {
    /// It looks at the journal.
    Looking,
    /// Its claim was committed, and nothing has run.
    Claimed,
    /// The effect has happened, and its end is not on record.
    Ran,
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    now: u64,
    // What is kept.
    call: CallState,
    ticket: Ticket,
    owner: Party,
    code: Option<&'static str>,
    // The processes.
    stands: [Stands; 3],
    /// Whether the approver has said yes, and thinks that it counts.
    approved: bool,
    // What an onlooker counts.
    effects: u8,
    answers: u8,
    started: u8,
    started_late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Act {
    TimePasses,
    /// The human at the owner's terminal.
    SaysYesHere,
    SaysNoHere,
    Withdraws,
    Approves,
    Denies,
    /// A process goes on with an answer that is on record.
    Resumes(Party),
    Runs(Party),
    Ends(Party),
    Expires(Party),
    Crashes(Party),
    /// A process that starts finishes what the dead have left.
    Recovers,
}

struct Tickets {
    /// A defect that the model has to find.
    defect: Option<Defect>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    /// An answer is taken although there is one.
    SecondAnswer,
    /// What was answered is gone on with by whoever sees it, whatever the state is.
    UncheckedClaim,
    /// A call whose host ended is run again although it may have had its effect.
    RunsAgain,
    /// The deadline is not looked at when the call starts.
    LateStart,
}

impl Tickets {
    fn change(&self, world: &World, claim: Claim, event: Event) -> Option<World> {
        let permitted = world.ticket.permits(claim, at(world.now)).is_ok();
        let permitted = permitted
            || (self.defect == Some(Defect::SecondAnswer) && claim == Claim::Fresh && world.now < DEADLINE)
            || (self.defect == Some(Defect::LateStart) && claim == Claim::Stored && world.ticket.answer.is_some());
        let awaits = matches!(world.call, CallState::Awaiting { .. });
        let call = match world.call.after(event) {
            Ok(call) if awaits && permitted => call,
            _ if self.defect == Some(Defect::UncheckedClaim)
                && claim == Claim::Stored
                && world.ticket.answer.is_some() =>
            {
                CallState::Executing { attempt: 1 }
            }
            _ => return None,
        };
        Some(World { call, ..world.clone() })
    }

    fn start(&self, world: &World, party: Party, claim: Claim) -> Option<World> {
        let mut next = self.change(world, claim, Event::Allow)?;
        next.owner = party;
        next.stands[party as usize] = Stands::Claimed;
        next.started = more(next.started);
        next.started_late |= world.now >= DEADLINE;
        if claim == Claim::Fresh {
            next.answers = more(next.answers);
        }
        Some(next)
    }

    fn is_alive(world: &World, party: Party) -> bool {
        world.stands[party as usize] != Stands::Dead
    }
}

impl Model for Tickets {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        let id: TicketId = "t-0123456789ab".parse().unwrap();
        vec![World {
            now: 0,
            call: CallState::Requested.after(Event::Ask(id)).unwrap(),
            ticket: Ticket { id, asked: at(0), deadline: at(DEADLINE), answer: None },
            owner: Party::Owner,
            code: None,
            stands: [Stands::Looking; 3],
            approved: false,
            effects: 0,
            answers: 0,
            started: 0,
            started_late: false,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Act>) {
        if world.now < DEADLINE {
            actions.push(Act::TimePasses);
        }
        for party in PARTIES {
            match world.stands[party as usize] {
                Stands::Looking => actions.extend([Act::Resumes(party), Act::Expires(party), Act::Crashes(party)]),
                Stands::Claimed => actions.extend([Act::Runs(party), Act::Crashes(party)]),
                Stands::Ran => actions.extend([Act::Ends(party), Act::Crashes(party)]),
                Stands::Dead => {}
            }
        }
        if world.stands[Party::Owner as usize] == Stands::Looking {
            actions.extend([Act::SaysYesHere, Act::SaysNoHere, Act::Withdraws]);
        }
        if world.stands[Party::Approver as usize] == Stands::Looking {
            actions.push(Act::Approves);
        }
        if world.stands[Party::Denier as usize] == Stands::Looking {
            actions.push(Act::Denies);
        }
        actions.push(Act::Recovers);
    }

    fn next_state(&self, world: &World, act: Act) -> Option<World> {
        let mut next = world.clone();
        match act {
            Act::TimePasses => next.now += 1,
            Act::SaysYesHere => next = self.start(world, Party::Owner, Claim::Fresh)?,
            Act::SaysNoHere | Act::Denies => {
                next = self.change(world, Claim::Fresh, Event::Refuse)?;
                next.code = Some("refused");
                next.answers = more(next.answers);
            }
            Act::Withdraws => {
                next = self.change(world, Claim::Withdrawn, Event::Refuse)?;
                next.code = Some("cancelled");
            }
            Act::Approves => {
                if !matches!(world.call, CallState::Awaiting { .. }) {
                    return None;
                }
                let answer = Answered { route: "ticket".into(), who: "a".into(), note: None, at: at(world.now) };
                next.ticket = match world.ticket.answered(answer.clone()) {
                    Ok(ticket) => ticket,
                    Err(_) if self.defect == Some(Defect::SecondAnswer) && world.now < DEADLINE => {
                        Ticket { answer: Some(answer), ..world.ticket.clone() }
                    }
                    Err(_) => return None,
                };
                next.answers = more(next.answers);
                next.approved = true;
            }
            // The owner goes on by itself; another only where the owner is gone.
            Act::Resumes(party) => {
                if party != world.owner && Self::is_alive(world, world.owner) {
                    return None;
                }
                next = self.start(world, party, Claim::Stored)?;
            }
            Act::Runs(party) => {
                next.effects = more(next.effects);
                next.stands[party as usize] = Stands::Ran;
            }
            Act::Ends(party) => {
                next.call = world.call.after(Event::Complete).ok()?;
                next.stands[party as usize] = Stands::Looking;
            }
            Act::Expires(_) => {
                next = self.change(world, Claim::Expiry, Event::Refuse)?;
                next.code = Some("expired");
            }
            Act::Crashes(party) => next.stands[party as usize] = Stands::Dead,
            Act::Recovers => {
                if Self::is_alive(world, world.owner) || !matches!(world.call, CallState::Executing { .. }) {
                    return None;
                }
                next.call = if self.defect == Some(Defect::RunsAgain) {
                    next.owner = Party::Denier;
                    next.stands[Party::Denier as usize] = Stands::Claimed;
                    next.started = more(next.started);
                    CallState::Executing { attempt: 2 }
                } else {
                    world.call.after(Event::Lose).ok()?
                };
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("at most one effect", |_, world: &World| world.effects <= 1),
            Property::always("at most one start", |_, world: &World| world.started <= 1),
            Property::always("one answer wins", |_, world: &World| world.answers <= 1),
            Property::always("an effect only after a yes", |_, world: &World| {
                world.effects == 0 || (world.answers == 1 && world.code.is_none())
            }),
            Property::always("no start after the deadline", |_, world: &World| !world.started_late),
            Property::always("a completed call had its effect", |_, world: &World| {
                world.call != CallState::Completed || world.effects == 1
            }),
            Property::always("what waits can still be ended, by whoever lives", |model, world: &World| {
                let waits = matches!(world.call, CallState::Awaiting { .. });
                let someone = PARTIES.into_iter().any(|party| Self::is_alive(world, party));
                let can = |act| model.next_state(world, act).is_some();
                let any = |act: fn(Party) -> Act| {
                    PARTIES.into_iter().filter(|party| Self::is_alive(world, *party)).any(|party| can(act(party)))
                };
                !waits
                    || !someone
                    || any(Act::Resumes)
                    || any(Act::Expires)
                    // Time is still to come.
                    || world.now < DEADLINE
            }),
            Property::sometimes("the owner goes on after an answer from elsewhere", |_, world: &World| {
                world.call == CallState::Completed && world.owner == Party::Owner && world.approved
            }),
            Property::sometimes("the approver makes the call of an owner that crashed", |_, world: &World| {
                world.call == CallState::Completed && world.owner == Party::Approver
            }),
            Property::sometimes("a human at the terminal wins", |_, world: &World| {
                world.call == CallState::Completed && world.owner == Party::Owner && !world.approved
            }),
            Property::sometimes("a no wins", |_, world: &World| world.code == Some("refused")),
            Property::sometimes("it expires although it was answered", |_, world: &World| {
                world.code == Some("expired") && world.ticket.answer.is_some()
            }),
            Property::sometimes("nobody knows how it ended", |_, world: &World| {
                world.call == CallState::Indeterminate && world.effects == 1
            }),
            Property::sometimes("nobody knows, and nothing had happened", |_, world: &World| {
                world.call == CallState::Indeterminate && world.effects == 0
            }),
        ]
    }
}

#[test]
fn no_interleaving_breaks_a_rule() {
    let checker = Tickets { defect: None }.checker().spawn_bfs().join();
    checker.assert_properties();
    assert!(checker.unique_state_count() > 500, "{}", checker.unique_state_count());
}

#[test]
fn a_broken_rule_is_found() {
    for defect in [Defect::SecondAnswer, Defect::UncheckedClaim, Defect::RunsAgain, Defect::LateStart] {
        let checker = Tickets { defect: Some(defect) }.checker().spawn_bfs().join();
        let broken = checker.discoveries().into_keys().filter(|name| {
            checker
                .model()
                .properties()
                .iter()
                .any(|property| property.name == *name && property.expectation == stateright::Expectation::Always)
        });
        assert!(broken.count() > 0, "{defect:?}");
    }
}
