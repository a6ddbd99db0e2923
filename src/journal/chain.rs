//! The chain of the authorization records: each is authenticated together with all before it, by a key that is kept outside of
//! the state folder. Pure.

use std::fmt;
use std::str::FromStr;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// One link: HMAC-SHA-256 over the link before it, its number and its record.
pub type Link = [u8; 32];

/// Makes links, and checks them.
#[derive(Clone)]
pub struct Chain {
    mac: Hmac<Sha256>,
}

/// The end of the chain: what to keep elsewhere, so that a cut tail shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// How many records were ever written.
    pub count: u64,
    /// The last link.
    pub link: Link,
}

/// What stands for the records that were pruned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The head at the last of them.
    pub head: Head,
    /// When they were pruned, in milliseconds since 1970.
    pub at: u64,
    /// By whom.
    pub by: String,
    /// Authenticates the others.
    pub signature: Link,
}

impl Chain {
    /// A chain under `key`.
    pub fn new(key: &[u8; 32]) -> Self {
        // The key serves other purposes too; each has a name of its own.
        let derived = mac(keyed(key), &[b"portcullis-authorization-key-1"]);
        Self { mac: keyed(&derived) }
    }

    /// Before the first record of the journal with this id.
    pub fn start(&self, journal: &str) -> Head {
        Head { count: 0, link: mac(self.mac.clone(), &[b"start", journal.as_bytes()]) }
    }

    /// The head after one more record.
    pub fn after(&self, head: &Head, record: &str) -> Head {
        let count = head.count + 1;
        Head { count, link: mac(self.mac.clone(), &[b"record", &head.link, &count.to_le_bytes(), record.as_bytes()]) }
    }

    /// Authenticates one record of a kind that stands by itself, in the journal with this id.
    pub fn seal(&self, journal: &str, kind: &str, record: &[u8]) -> Link {
        mac(self.mac.clone(), &[b"seal", journal.as_bytes(), kind.as_bytes(), record])
    }

    /// A checkpoint for the records up to `head`.
    pub fn checkpoint(&self, journal: &str, head: Head, at: u64, by: &str) -> Checkpoint {
        let (count, time) = (head.count.to_le_bytes(), at.to_le_bytes());
        let parts: [&[u8]; 6] = [b"checkpoint", journal.as_bytes(), &head.link, &count, &time, by.as_bytes()];
        Checkpoint { head, at, by: by.to_owned(), signature: mac(self.mac.clone(), &parts) }
    }

    /// Whether a checkpoint was made here, for the journal with this id.
    pub fn is_signed(&self, journal: &str, checkpoint: &Checkpoint) -> bool {
        self.checkpoint(journal, checkpoint.head, checkpoint.at, &checkpoint.by).signature == checkpoint.signature
    }
}

/// HMAC under a key of 32 bytes, which RFC 2104 fills up to a block with zeros.
fn keyed(key: &[u8; 32]) -> Hmac<Sha256> {
    let mut block = [0; 64];
    block[..32].copy_from_slice(key);
    Hmac::new(&block.into())
}

/// Each part is length-prefixed, so that no two lists of parts are the same bytes.
fn mac(mut mac: Hmac<Sha256>, parts: &[&[u8]]) -> Link {
    for part in parts {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chain")
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.count, hex::encode(self.link))
    }
}

/// A text that is no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a head is what `portcullis audit head` prints: a count, a colon and 64 hexadecimal digits")]
pub struct HeadError;

impl FromStr for Head {
    type Err = HeadError;

    fn from_str(text: &str) -> Result<Self, HeadError> {
        let (count, link) = text.split_once(':').ok_or(HeadError)?;
        let mut bytes = [0; 32];
        hex::decode_to_slice(link, &mut bytes).map_err(|_| HeadError)?;
        let digits = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
        let count = count.parse().ok().filter(|_| digits).ok_or(HeadError)?;
        Ok(Self { count, link: bytes })
    }
}

/// One record with its link, as it was stored.
#[derive(Clone, Debug)]
pub struct Linked {
    /// Its number, from 1.
    pub number: u64,
    /// The record.
    pub record: String,
    /// Its link; none where what is stored is no link at all.
    pub link: Option<Link>,
}

/// What a look at the whole chain found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Every record is as it was written.
    Whole(Head),
    /// Every record that is left is as it was written; the given head lies before those that were pruned, and cannot be held against
    /// them any more.
    Pruned(Head),
    /// The first record that is not.
    Broken {
        /// Its number.
        number: u64,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// Looks at a whole chain: `records` in the order of their numbers, behind the newest checkpoint where there is one. `kept` is a
/// head from elsewhere.
pub fn verify<E>(
    chain: &Chain,
    journal: &str,
    checkpoint: Option<&Checkpoint>,
    records: impl Iterator<Item = Result<Linked, E>>,
    kept: Option<&Head>,
) -> Result<Finding, E> {
    let broken = |number, what| Ok(Finding::Broken { number, what });
    let mut head = match checkpoint {
        None => chain.start(journal),
        Some(checkpoint) if chain.is_signed(journal, checkpoint) => checkpoint.head,
        Some(checkpoint) => return broken(checkpoint.head.count, "the checkpoint for it was not made here"),
    };
    let from = head.count;
    let mut met = kept.is_none_or(|kept| *kept == head);
    for record in records {
        let record = record?;
        let next = head.count + 1;
        if record.number > next {
            return broken(next, "it is missing");
        }
        if record.number < next {
            return broken(record.number, "it is there although it was pruned");
        }
        let computed = chain.after(&head, &record.record);
        if record.link != Some(computed.link) {
            return broken(next, "it, or one before it, is not what was written");
        }
        head = computed;
        if let Some(kept) = kept
            && kept.count == head.count
        {
            if kept.link != head.link {
                return broken(head.count, "it is another than the one that the given head belongs to");
            }
            met = true;
        }
    }
    match kept {
        Some(kept) if !met && kept.count < from => Ok(Finding::Pruned(head)),
        Some(kept) if !met && kept.count == from => {
            broken(from, "it is another than the one that the given head belongs to")
        }
        Some(kept) if !met => broken(
            head.count + 1,
            if kept.count == head.count + 1 {
                "it is missing: the end was cut off"
            } else {
                "it and all after it are missing: the end was cut off"
            },
        ),
        _ => Ok(Finding::Whole(head)),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn chain() -> Chain {
        Chain::new(&[7; 32])
    }

    fn records(count: u64) -> (Vec<Linked>, Vec<Head>) {
        let (mut records, mut heads) = (Vec::new(), vec![chain().start("j")]);
        for number in 1..=count {
            let record = format!("{{\"at\":{number}}}");
            let head = chain().after(heads.last().unwrap(), &record);
            records.push(Linked { number, record, link: Some(head.link) });
            heads.push(head);
        }
        (records, heads)
    }

    fn look(records: &[Linked], checkpoint: Option<&Checkpoint>, kept: Option<&Head>) -> Finding {
        let records = records.iter().cloned().map(Ok::<_, Infallible>);
        verify(&chain(), "j", checkpoint, records, kept).unwrap()
    }

    fn is_broken_at(finding: &Finding, wanted: u64) -> bool {
        matches!(finding, Finding::Broken { number, .. } if *number == wanted)
    }

    #[test]
    fn what_was_edited_removed_moved_or_cut_is_found() {
        let (whole, heads) = records(6);
        assert_eq!(look(&whole, None, None), Finding::Whole(heads[6]));
        for index in 0..6 {
            let number = index as u64 + 1;
            let mut edited = whole.clone();
            edited[index].record.push(' ');
            assert!(is_broken_at(&look(&edited, None, None), number));
            let mut forged = whole.clone();
            forged[index].link = None;
            assert!(is_broken_at(&look(&forged, None, None), number));
            let mut removed = whole.clone();
            removed.remove(index);
            let cut = index == 5;
            assert_eq!(look(&removed, None, None) == Finding::Whole(heads[5]), cut);
            assert!(cut || is_broken_at(&look(&removed, None, None), number));
            assert!(is_broken_at(&look(&removed, None, Some(&heads[6])), number));
            // Renumbered after the removal, so that no number is missing.
            for (at, record) in removed.iter_mut().enumerate() {
                record.number = at as u64 + 1;
            }
            assert!(cut || is_broken_at(&look(&removed, None, None), number));
            if index > 0 {
                let mut moved = whole.clone();
                moved.swap(index - 1, index);
                for (at, record) in moved.iter_mut().enumerate() {
                    record.number = at as u64 + 1;
                }
                assert!(is_broken_at(&look(&moved, None, None), number - 1));
            }
        }
        // Every head that was ever printed is still met.
        for head in &heads {
            assert_eq!(look(&whole, None, Some(head)), Finding::Whole(heads[6]));
        }
        let other = Head { link: [0; 32], ..heads[3] };
        assert!(is_broken_at(&look(&whole, None, Some(&other)), 3));
    }

    #[test]
    fn another_key_and_another_journal_are_told() {
        let (whole, _) = records(2);
        let records = || whole.iter().cloned().map(Ok::<_, Infallible>);
        let other = verify(&Chain::new(&[8; 32]), "j", None, records(), None).unwrap();
        assert!(is_broken_at(&other, 1));
        assert!(is_broken_at(&verify(&chain(), "k", None, records(), None).unwrap(), 1));
    }

    #[test]
    fn a_checkpoint_stands_for_what_was_pruned_and_cannot_be_made_up() {
        let (whole, heads) = records(6);
        let checkpoint = chain().checkpoint("j", heads[3], 5, "me");
        let rest = &whole[3..];
        assert_eq!(look(rest, Some(&checkpoint), None), Finding::Whole(heads[6]));
        assert!(is_broken_at(&look(rest, None, None), 1), "pruned without a checkpoint");
        for head in [&heads[3], &heads[5]] {
            assert_eq!(look(rest, Some(&checkpoint), Some(head)), Finding::Whole(heads[6]));
        }
        assert_eq!(look(rest, Some(&checkpoint), Some(&heads[1])), Finding::Pruned(heads[6]));
        let foreign = chain().checkpoint("k", heads[3], 5, "me");
        assert!(is_broken_at(&look(rest, Some(&foreign), None), 3), "the checkpoint of another journal");
        assert!(is_broken_at(&look(&rest[..1], Some(&checkpoint), Some(&heads[5])), 5));
        assert!(is_broken_at(&look(&whole[4..], Some(&checkpoint), None), 4));
        assert!(is_broken_at(&look(&whole, Some(&checkpoint), None), 1), "what was pruned has come back");
        for forged in [
            Checkpoint { head: heads[4], ..checkpoint.clone() },
            Checkpoint { at: 6, ..checkpoint.clone() },
            Checkpoint { by: "you".to_owned(), ..checkpoint.clone() },
            Checkpoint { signature: [0; 32], ..checkpoint.clone() },
        ] {
            assert!(matches!(look(rest, Some(&forged), None), Finding::Broken { .. }));
        }
        let replaced = Head { link: [0; 32], ..heads[3] };
        assert!(is_broken_at(&look(rest, Some(&checkpoint), Some(&replaced)), 3));
    }

    #[test]
    fn a_head_reads_as_it_was_printed() {
        let (_, heads) = records(2);
        for head in heads {
            assert_eq!(head.to_string().parse(), Ok(head));
        }
        for bad in ["", "1", "1:", "1:00", ":00", &format!("-1:{}", "0".repeat(64)), &format!("+1:{}", "0".repeat(64))]
        {
            assert_eq!(bad.parse::<Head>(), Err(HeadError), "{bad}");
        }
    }
}
