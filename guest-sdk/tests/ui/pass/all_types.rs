#![deny(warnings)]

#[portcullis_guest::tools]
mod tool {
    use std::collections::{BTreeMap, HashMap};

    type Names = Vec<String>;

    #[derive(Clone, Debug, PartialEq)]
    pub struct Record {
        pub r#type: u8,
        pub names: Names,
        pub inner: Box<Inner>,
    }

    #[derive(Clone, Debug, PartialEq)]
    pub struct Inner {
        pub list: Option<Vec<Kind>>,
    }

    #[derive(Clone, Debug, PartialEq)]
    pub enum Kind {
        Plain,
        With((char, bool)),
    }

    #[flags]
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    pub struct Flags {
        pub one: bool,
        pub two: bool,
    }

    pub fn clear(mut record: Record) -> self::Record {
        record.names.clear();
        record
    }
    pub fn maps(a: BTreeMap<String, Kind>, b: HashMap<u32, u32>) -> (u64, u64) {
        (a.len() as u64, b.len() as u64)
    }
    pub fn refuse(flags: Flags) -> std::result::Result<(), Flags> {
        Err(flags)
    }
    pub fn r#match(_text: std::string::String) -> Result<f32, ()> {
        Err(())
    }
    pub fn unit() -> () {}
}

fn main() {
    let inner = tool::Inner { list: None };
    let record = tool::Record { r#type: 1, names: vec![], inner: Box::new(inner) };
    assert_eq!(tool::clear(record.clone()), record);
}
