//! Reads, writes and searches the files of one granted folder.

/// Text files under `/data`.
#[portcullis_guest::tools]
mod files {
    use portcullis_guest::fs;
    use std::io::Write as _;

    /// A line in which a text was found.
    #[derive(Debug, PartialEq)]
    pub struct Hit {
        pub path: String,
        /// Counted from 1.
        pub line: u32,
        pub text: String,
    }

    /// Read a text file.
    pub fn read(path: String) -> Result<String, String> {
        fs::read_to_string(&path).map_err(|error| failed(&path, error))
    }

    /// List a folder: the names in it, in order, with `/` behind those of folders.
    pub fn list(path: String) -> Result<Vec<String>, String> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).map_err(|error| failed(&path, error))? {
            let entry = entry.map_err(|error| failed(&path, error))?;
            let kind = entry.file_type().map_err(|error| failed(&path, error))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            names.push(if kind.is_dir() { name + "/" } else { name });
        }
        names.sort();
        Ok(names)
    }

    /// Write a text file. What was in it is gone.
    pub fn write(path: String, text: String) -> Result<(), String> {
        fs::write(&path, text).map_err(|error| failed(&path, error))
    }

    /// Add a text to the end of a text file, which is made where there is none.
    pub fn append(path: String, text: String) -> Result<(), String> {
        let mut options = fs::OpenOptions::new();
        let mut file = options.append(true).create(true).open(&path).map_err(|error| failed(&path, error))?;
        file.write_all(text.as_bytes()).map_err(|error| failed(&path, error))
    }

    /// Find the lines that contain a text, in one file or in all files under a folder.
    pub fn search(path: String, text: String) -> Result<Vec<Hit>, String> {
        let metadata = fs::metadata(&path).map_err(|error| failed(&path, error))?;
        if !metadata.is_dir() {
            return hits(&path, &text);
        }
        let mut found = Vec::new();
        for name in list(path.clone())? {
            let inner = format!("{}/{}", path.trim_end_matches('/'), name.trim_end_matches('/'));
            found.extend(search(inner, text.clone())?);
        }
        Ok(found)
    }

    fn hits(path: &str, text: &str) -> Result<Vec<Hit>, String> {
        let content = fs::read(path).map_err(|error| failed(path, error))?;
        let content = String::from_utf8_lossy(&content);
        let lines = (1..).zip(content.lines());
        let lines = lines.filter(|(_, line)| line.contains(text));
        let hits = lines.map(|(number, line)| Hit { path: path.to_owned(), line: number, text: line.to_owned() });
        Ok(hits.collect())
    }

    fn failed(path: &str, error: std::io::Error) -> String {
        format!("{path}: {error}")
    }
}

#[cfg(test)]
mod tests {
    use super::files::*;
    use portcullis_guest::testing::Host;

    fn host() -> Host {
        Host::new().folder("/data", [("a.txt", "one\ntwo"), ("sub/b.txt", "two")])
    }

    #[test]
    fn what_was_written_is_read_and_listed() {
        host().run(|| {
            assert_eq!(write("/data/c.txt".to_owned(), "new".to_owned()), Ok(()));
            assert_eq!(append("/data/c.txt".to_owned(), "er".to_owned()), Ok(()));
            assert_eq!(read("/data/c.txt".to_owned()).as_deref(), Ok("newer"));
            let names = ["a.txt", "c.txt", "sub/"].map(str::to_owned);
            assert_eq!(list("/data".to_owned()), Ok(names.to_vec()));
        });
    }

    #[test]
    fn a_search_goes_through_folders() {
        let found = host().run(|| search("/data".to_owned(), "two".to_owned())).unwrap();
        let found = found.iter().map(|hit| (hit.path.as_str(), hit.line));
        let expected = [("/data/a.txt", 2), ("/data/sub/b.txt", 1)];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_path_outside_is_an_error_that_names_it() {
        let error = host().run(|| read("/etc/passwd".to_owned())).unwrap_err();
        assert!(error.starts_with("/etc/passwd: "), "{error}");
    }
}
