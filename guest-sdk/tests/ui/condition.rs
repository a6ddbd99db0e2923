#![allow(unused)]

#[portcullis_guest::tools]
mod tool {
    #[cfg(unix)]
    pub fn sometimes() {}
}

fn main() {}
