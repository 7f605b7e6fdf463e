//! Where a walk stands within a value: a chain on the stack of the walk, which takes no memory until it is told.

/// A place, by the way to it.
pub enum Place<'a> {
    Root,
    Member(&'a Self, &'a str),
    Item(&'a Self, usize),
}

impl Place<'_> {
    /// The place's JSON pointer (RFC 6901).
    pub fn pointer(&self) -> String {
        let mut steps = Vec::new();
        let mut place = self;
        loop {
            place = match place {
                Self::Root => break,
                Self::Member(above, key) => {
                    steps.push(key.replace('~', "~0").replace('/', "~1"));
                    above
                }
                Self::Item(above, at) => {
                    steps.push(at.to_string());
                    above
                }
            };
        }
        steps.iter().rev().flat_map(|step| ["/", step]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_as_a_json_pointer() {
        assert_eq!(Place::Root.pointer(), "");
        let key = Place::Member(&Place::Root, "a/b~");
        assert_eq!(Place::Item(&key, 7).pointer(), "/a~1b~0/7");
    }
}
