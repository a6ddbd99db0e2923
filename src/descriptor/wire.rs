//! Wire names: what model providers and MCP clients call a tool.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sha2::{Digest, Sha256};

use crate::ids::ToolId;

/// Longest wire name.
pub const WIRE_NAME_MAX: usize = 64;
/// Fewest and most hexadecimal digits of a hashed name. As many as the most are beyond anybody's reach to collide.
const HASH_MIN: usize = 8;
const HASH_MAX: usize = 32;

/// Assigns one wire name to each id: the id with everything outside `[A-Za-z0-9_-]` as `_`.
///
/// An id whose plain name is too long, collides (then every id of the colliding set) or is `reserved` for another id
/// gets its name cut, plus `_` and 8 hexadecimal digits of the id's SHA-256; more digits where these collide, too.
pub fn assign(ids: &BTreeSet<ToolId>, reserved: impl Fn(&str) -> Option<ToolId>) -> BTreeMap<ToolId, String> {
    // How many digits each id's name has so far; none for a plain name.
    let mut digits: BTreeMap<&ToolId, usize> =
        ids.iter().map(|id| (id, if plain(id).len() > WIRE_NAME_MAX { HASH_MIN } else { 0 })).collect();
    loop {
        let names: BTreeMap<&ToolId, String> = digits.iter().map(|(id, digits)| (*id, name(id, *digits))).collect();
        let mut users: HashMap<&str, usize> = HashMap::new();
        for name in names.values() {
            *users.entry(name).or_default() += 1;
        }
        let taken = |id: &ToolId, name: &str| reserved(name).is_some_and(|owner| owner != *id);
        let clashing: Vec<&ToolId> = names
            .iter()
            .filter(|(id, name)| digits[*id] < HASH_MAX && (users[name.as_str()] > 1 || taken(id, name)))
            .map(|(id, _)| *id)
            .collect();
        if clashing.is_empty() {
            return names.into_iter().map(|(id, name)| (id.clone(), name)).collect();
        }
        // Each round lengthens at least one name, and no name beyond a bound, so this ends.
        for id in clashing {
            digits.entry(id).and_modify(|digits| *digits = (*digits * 2).clamp(HASH_MIN, HASH_MAX));
        }
    }
}

fn plain(id: &ToolId) -> String {
    id.as_str().chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect()
}

fn name(id: &ToolId, digits: usize) -> String {
    let mut name = plain(id);
    if digits > 0 {
        let digest = hex::encode(Sha256::digest(id.as_str().as_bytes()));
        name.truncate(WIRE_NAME_MAX - 1 - digits);
        name.push('_');
        name.push_str(&digest[..digits]);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(list: &[&str]) -> BTreeSet<ToolId> {
        list.iter().map(|id| id.parse().unwrap()).collect()
    }

    #[test]
    fn a_plain_name_is_the_id_with_underscores() {
        let names = assign(&ids(&["files/text.read", "files/@start"]), |_| None);
        let names: Vec<&str> = names.values().map(String::as_str).collect();
        assert_eq!(names, ["files__start", "files_text_read"]);
    }

    #[test]
    fn every_id_of_a_colliding_set_is_hashed_and_all_names_differ() {
        let names = assign(&ids(&["a/b.c", "a/b_c", "a_b/c", "a/other"]), |_| None);
        let distinct: BTreeSet<&String> = names.values().collect();
        assert_eq!(distinct.len(), 4);
        assert_eq!(names.values().filter(|n| n.starts_with("a_b_c_")).count(), 3);
        assert!(names.values().any(|n| n == "a_other"));
    }

    #[test]
    fn long_names_are_cut_to_the_limit_and_stay_apart() {
        let long = "x".repeat(80);
        let names = assign(&ids(&[&format!("p/{long}a"), &format!("p/{long}b")]), |_| None);
        let distinct: BTreeSet<&String> = names.values().collect();
        assert_eq!(distinct.len(), 2);
        assert!(names.values().all(|n| n.len() == WIRE_NAME_MAX));
    }

    #[test]
    fn ids_whose_short_hashes_collide_stay_apart() {
        let long = "a".repeat(60);
        let names = assign(&ids(&[&format!("p/{long}-x11326"), &format!("p/{long}-x64539")]), |_| None);
        let distinct: BTreeSet<&String> = names.values().collect();
        assert_eq!(distinct.len(), 2, "{names:?}");
    }

    #[test]
    fn an_id_cannot_take_the_hashed_name_of_another() {
        let victim = ids(&["a/b.c", "a/b_c"]);
        let stolen = assign(&victim, |_| None)[&"a/b.c".parse::<ToolId>().unwrap()].clone();
        let thief = stolen.replacen('_', "/", 1);
        let names = assign(&ids(&["a/b.c", "a/b_c", &thief]), |_| None);
        let distinct: BTreeSet<&String> = names.values().collect();
        assert_eq!(distinct.len(), 3);
    }

    #[test]
    fn a_name_once_served_is_not_given_to_another_id() {
        let before: ToolId = "a/b.c".parse().unwrap();
        let names = assign(&ids(&["a/b_c"]), |name| (name == "a_b_c").then(|| before.clone()));
        assert_ne!(names.values().next().unwrap(), "a_b_c");
    }
}
