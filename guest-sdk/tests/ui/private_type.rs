#![allow(unused)]

#[portcullis_guest::tools]
mod tool {
    enum Case {
        Upper,
    }
    pub(crate) struct Hit {
        line: u32,
    }

    pub fn change(case: Case) -> Vec<Hit> {
        Vec::new()
    }
}

fn main() {}
