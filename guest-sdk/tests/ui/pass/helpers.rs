//! What is not `pub` is the author's own business.
#![deny(warnings)]

#[portcullis_guest::tools]
mod tool {
    use std::path::{Path, PathBuf};

    struct Private<'a, T>(&'a T);

    pub struct Unused {
        pub path: PathBuf,
    }

    fn helper(path: &Path) -> usize {
        Private(&path.as_os_str().len()).0 + 1
    }

    impl Unused {
        pub fn generic<T>(&self, value: T) -> T {
            value
        }
    }

    pub(crate) const fn of_the_crate() -> u128 {
        1
    }

    pub fn length(path: String) -> u32 {
        helper(Path::new(&path)) as u32
    }

    #[cfg(test)]
    mod tests {}
}

fn main() {
    assert_eq!(tool::length("abc".to_owned()), 4);
    assert_eq!(tool::of_the_crate(), 1);
    let unused = tool::Unused { path: "x".into() };
    assert_eq!(unused.generic(1), 1);
    assert!(unused.path.is_relative());
}
