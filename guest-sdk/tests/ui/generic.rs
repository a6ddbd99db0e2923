#![allow(unused)]

#[portcullis_guest::tools]
mod tool {
    pub struct Pair<T> {
        pub one: T,
        pub two: T,
    }

    type Fallible<T> = Result<T, String>;

    pub fn show<T: ToString>(value: u32) {}
    pub fn pair(pair: Pair<u32>) {}
    pub fn fallible() -> Fallible<u32> {
        Ok(1)
    }
}

fn main() {}
