//! Wire names: what model providers and MCP clients call a tool.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sha2::{Digest, Sha256};

use crate::ids::ToolId;

/// Longest wire name.
pub const WIRE_NAME_MAX: usize = 64;

/// Assigns one wire name to each id: the id with everything outside `[A-Za-z0-9_-]` as `_`.
///
/// An id whose plain name is too long, collides (then every id of the colliding set) or is `reserved` for another id
/// gets its name cut, plus `_` and 8 hexadecimal digits of the id's SHA-256.
pub fn assign(ids: &BTreeSet<ToolId>, reserved: impl Fn(&str) -> Option<ToolId>) -> BTreeMap<ToolId, String> {
    let mut users: HashMap<String, usize> = HashMap::new();
    for id in ids {
        *users.entry(plain(id)).or_default() += 1;
    }
    // A hashed name can equal another id's plain name; that id is then hashed too.
    let hashed_names: BTreeSet<String> = ids.iter().map(hashed).collect();
    ids.iter()
        .map(|id| {
            let name = plain(id);
            let taken = reserved(&name).is_some_and(|owner| owner != *id);
            let unique = users.get(&name) == Some(&1) && !hashed_names.contains(&name);
            let name = if unique && !taken && name.len() <= WIRE_NAME_MAX { name } else { hashed(id) };
            (id.clone(), name)
        })
        .collect()
}

fn plain(id: &ToolId) -> String {
    id.as_str().chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect()
}

fn hashed(id: &ToolId) -> String {
    let digest = hex::encode(&Sha256::digest(id.as_str().as_bytes())[..4]);
    let mut name = plain(id);
    name.truncate(WIRE_NAME_MAX - 1 - digest.len());
    format!("{name}_{digest}")
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
