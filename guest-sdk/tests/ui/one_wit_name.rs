#![allow(unused)]

#[portcullis_guest::tools]
#[allow(non_snake_case, non_camel_case_types)]
mod tool {
    pub fn word_count() {}
    pub fn wordCount() {}

    pub enum Case {
        Upper,
    }
    pub fn case(case: Case) {}

    pub enum Twice {
        One_Two,
        OneTwo,
    }
    pub fn twice(a_b: Twice, aB: u32) {}
}

fn main() {}
