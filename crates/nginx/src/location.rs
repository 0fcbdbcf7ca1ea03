//! Which location does nginx choose? Puts the locations of a server into an order in which the first match is nginx's.

use crate::expressions::is_match;
use crate::parse::Directive;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// `= /path`
    Exact(String),
    /// `/path`, or `^~ /path`, which ends the search.
    Prefix { prefix: String, ends_search: bool },
    /// `~`, or `~*` with `(?i)`.
    Regexp(String),
    /// `@name`
    Named(String),
}

/// A location, with those around it, and with the paths for which nginx looks at it.
#[derive(Debug, Clone)]
pub(crate) struct Location<'a> {
    pub(crate) pattern: Pattern,
    /// `http`, the server, the locations around it, and its own block. The server itself is the location of paths that
    /// no other takes.
    pub(crate) blocks: Vec<&'a Directive>,
    pub(crate) conditions: PathConditions,
}

/// The blocks outside of locations: `http` and the server.
const SERVER_BLOCKS: usize = 2;

/// Of the blocks around a place, those of locations.
pub(crate) fn location_blocks<'b, 'a>(blocks: &'b [&'a Directive]) -> &'b [&'a Directive] {
    &blocks[SERVER_BLOCKS.min(blocks.len())..]
}

/// Conditions of a location beside its own pattern. All have to hold.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathConditions {
    /// The expressions of the locations around it.
    pub(crate) around: Vec<String>,
    /// The prefix of the innermost location around it that has one.
    pub(crate) within: Option<String>,
    /// Longer prefixes: their locations take these paths, although they are later in the order.
    pub(crate) except: Vec<String>,
    /// Prefixes beside an expression with `^~`, for whose paths nginx does not look at it; each with the longer
    /// prefixes without `^~`, for whose paths it does.
    pub(crate) closed: Vec<(String, Vec<String>)>,
}

impl PathConditions {
    fn is_none(&self) -> bool {
        let Self { around, within: _, except, closed } = self;
        around.is_empty() && except.is_empty() && closed.is_empty()
    }
}

/// Returns the pattern of a location, or the reason why it has none.
pub(crate) fn pattern(directive: &Directive) -> Result<Pattern, String> {
    let prefix = |text: &str, ends_search| Pattern::Prefix { prefix: text.to_owned(), ends_search };
    match directive.arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["=", path] => Ok(Pattern::Exact(path.to_owned())),
        ["^~", path] => Ok(prefix(path, true)),
        ["~", expression] => Ok(Pattern::Regexp(expression.to_owned())),
        ["~*", expression] => Ok(Pattern::Regexp(format!("(?i){expression}"))),
        [one] => Ok(match one.chars().next() {
            Some('@') => Pattern::Named(one[1..].to_owned()),
            Some('=') => Pattern::Exact(one[1..].to_owned()),
            Some('~') if one.starts_with("~*") => Pattern::Regexp(format!("(?i){}", &one[2..])),
            Some('~') => Pattern::Regexp(one[1..].to_owned()),
            Some('^') if one.starts_with("^~") => prefix(&one[2..], true),
            _ => prefix(one, false),
        }),
        _ => Err(format!("found {} arguments, expected a modifier and a pattern", directive.arguments.len())),
    }
}

/// The locations of a server.
#[derive(Debug, Default)]
pub(crate) struct Locations<'a> {
    /// In an order in which the first that takes a path is nginx's.
    pub(crate) ordered: Vec<Location<'a>>,
    pub(crate) named: Vec<Location<'a>>,
    /// Locations without a pattern, with the reason.
    pub(crate) invalid: Vec<(&'a Directive, String)>,
}

/// The locations directly within one block.
struct Level<'a> {
    exact: Vec<Location<'a>>,
    /// The longest first.
    prefixes: Vec<Location<'a>>,
    /// As written.
    expressions: Vec<Location<'a>>,
}

impl<'a> Locations<'a> {
    /// Finds the locations of a server, the last of the blocks.
    ///
    /// nginx searches level by level (`ngx_http_core_find_location`): an exact path ends the search. Otherwise it
    /// searches within the longest prefix, and unless an exact path or an expression there ends the search, it tries
    /// the expressions beside that prefix. Only without any of them the longest prefixes count.
    pub(crate) fn of(blocks: &[&'a Directive]) -> Self {
        let mut found = Self::default();
        found.add_all(blocks, &PathConditions::default());
        // Within one prefix there may be locations for a prefix that is beside it too. No path reaches them.
        let mut taken: Vec<String> = Vec::new();
        found.ordered.retain(|location| {
            let prefix = location.prefix();
            let is_taken = !prefix.is_empty() && taken.iter().any(|earlier| prefix.starts_with(earlier.as_str()));
            if location.is_prefix() && location.conditions.is_none() {
                taken.push(prefix.to_owned());
            }
            !is_taken
        });
        found
    }

    /// Adds the locations within a block where the search ends: the server, an expression, or `^~` in one of these.
    fn add_all(&mut self, blocks: &[&'a Directive], conditions: &PathConditions) {
        let level = self.level(blocks, conditions);
        self.ordered.extend(level.exact.iter().cloned());
        for location in &level.prefixes {
            // The longer prefixes with `^~` stand before it.
            let inner = level.conditions_of(location, |other| !other.ends_search());
            if location.ends_search() {
                self.add_all(&location.blocks, &inner);
                self.ordered.push(Location {
                    conditions: PathConditions { within: conditions.within.clone(), ..inner },
                    ..location.clone()
                });
            } else {
                self.add_ending(&location.blocks, &level.conditions_of(location, |_| true));
            }
        }
        self.add_expressions(level.expressions, &[]);
        for location in level.prefixes.into_iter().filter(|location| !location.ends_search()) {
            self.add_prefixes(location);
        }
    }

    /// Adds the locations within a prefix that end the search.
    fn add_ending(&mut self, blocks: &[&'a Directive], conditions: &PathConditions) {
        let level = self.level(blocks, conditions);
        self.ordered.extend(level.exact.iter().cloned());
        let mut closed = Vec::new();
        for location in &level.prefixes {
            self.add_ending(&location.blocks, &level.conditions_of(location, |_| true));
            if location.ends_search() {
                closed.push((
                    location.prefix().to_owned(),
                    level.conditions_of(location, |other| !other.ends_search()).except,
                ));
            }
        }
        self.add_expressions(level.expressions, &closed);
    }

    /// Adds a prefix, and the longer ones within it, for the paths that nothing else takes.
    fn add_prefixes(&mut self, location: Location<'a>) {
        let mut inner = Self::default();
        for longer in inner.level(&location.blocks, &location.conditions).prefixes {
            self.add_prefixes(longer);
        }
        self.ordered.push(location);
    }

    fn add_expressions(&mut self, expressions: Vec<Location<'a>>, closed: &[(String, Vec<String>)]) {
        for mut location in expressions {
            location.conditions.closed.extend_from_slice(closed);
            let mut inner = location.conditions.clone();
            if let Pattern::Regexp(expression) = &location.pattern {
                inner.around.push(expression.clone());
            }
            self.add_all(&location.blocks, &inner);
            self.ordered.push(location);
        }
    }

    fn level(&mut self, blocks: &[&'a Directive], conditions: &PathConditions) -> Level<'a> {
        let mut level = Level { exact: Vec::new(), prefixes: Vec::new(), expressions: Vec::new() };
        let owner = blocks[blocks.len() - 1];
        for directive in owner.block().iter().filter(|directive| directive.name == "location") {
            let pattern = match pattern(directive) {
                Ok(pattern) => pattern,
                Err(reason) => {
                    self.invalid.push((directive, reason));
                    continue;
                }
            };
            let blocks = blocks.iter().copied().chain([directive]).collect();
            let location = Location { pattern, blocks, conditions: conditions.clone() };
            match &location.pattern {
                Pattern::Exact(_) => level.exact.push(location),
                Pattern::Prefix { .. } => level.prefixes.push(location),
                Pattern::Regexp(_) => level.expressions.push(location),
                Pattern::Named(_) => self.named.push(location),
            }
        }
        level.prefixes.sort_by_key(|location| std::cmp::Reverse(location.prefix().len()));
        level
    }

    /// The location that takes a path.
    pub(crate) fn chosen(&self, path: &str) -> Option<&Location<'a>> {
        self.ordered.iter().find(|location| location.takes(path))
    }

    /// The location `@name`.
    pub(crate) fn named(&self, name: &str) -> Option<&Location<'a>> {
        self.named.iter().find(|location| matches!(&location.pattern, Pattern::Named(own) if own == name))
    }
}

impl<'a> Level<'a> {
    /// The conditions of the paths for which a prefix is the longest of its level; only some of the longer ones count.
    fn conditions_of(&self, location: &Location<'a>, counts: impl Fn(&Location<'a>) -> bool) -> PathConditions {
        let own = location.prefix();
        let longer =
            self.prefixes.iter().filter(|other| other.prefix().len() > own.len() && other.prefix().starts_with(own));
        let mut conditions = PathConditions { within: Some(own.to_owned()), ..location.conditions.clone() };
        conditions.except.extend(longer.filter(|other| counts(other)).map(|other| other.prefix().to_owned()));
        conditions
    }
}

impl<'a> Location<'a> {
    /// Whether it has `^~`: nginx does not look at the expressions beside it.
    pub(crate) fn ends_search(&self) -> bool {
        matches!(self.pattern, Pattern::Prefix { ends_search: true, .. })
    }

    /// The blocks of locations: its own, and those around it; none for the server itself.
    pub(crate) fn location_blocks(&self) -> &[&'a Directive] {
        location_blocks(&self.blocks)
    }

    /// `http` and the server.
    pub(crate) fn server_blocks(&self) -> &[&'a Directive] {
        &self.blocks[..SERVER_BLOCKS]
    }

    pub(crate) fn is_server(&self) -> bool {
        self.blocks.len() == SERVER_BLOCKS
    }

    /// Whether another location is in the same block.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        let around = |location: &Self| location.blocks[location.blocks.len() - 2] as *const Directive;
        std::ptr::eq(around(self), around(other))
    }

    pub(crate) fn is_prefix(&self) -> bool {
        matches!(self.pattern, Pattern::Prefix { .. })
    }

    pub(crate) fn own(&self) -> &Directive {
        self.blocks[self.blocks.len() - 1]
    }

    /// The path of an exact or a prefix location; empty for others.
    pub(crate) fn prefix(&self) -> &str {
        match &self.pattern {
            Pattern::Exact(path) | Pattern::Prefix { prefix: path, .. } => path,
            _ => "",
        }
    }

    /// Whether this location, in its place of the order, takes a path.
    pub(crate) fn takes(&self, path: &str) -> bool {
        let matches = |expression: &String| is_match(expression, path);
        let begins = |prefix: &String| path.starts_with(prefix.as_str());
        let PathConditions { around, within, except, closed } = &self.conditions;
        let own = match &self.pattern {
            Pattern::Exact(exact) => path == exact,
            Pattern::Prefix { prefix, .. } => begins(prefix),
            Pattern::Regexp(expression) => matches(expression),
            Pattern::Named(_) => false,
        };
        own && around.iter().all(matches)
            && within.as_ref().is_none_or(begins)
            && !except.iter().any(begins)
            && !closed.iter().any(|(prefix, open)| begins(prefix) && !open.iter().any(begins))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;
    use crate::translate::tests::NoFiles;

    /// nginx's choice, by its algorithm: the name of the location, which is its root.
    fn nginx<'a>(level: &'a Directive, path: &str, found: &mut Option<&'a Directive>) -> bool {
        let inner = || level.block().iter().filter(|d| d.name == "location").map(|d| (d, pattern(d).unwrap()));
        let mut longest: Option<(&Directive, String, bool)> = None;
        for (directive, pattern) in inner() {
            match pattern {
                Pattern::Exact(exact) if exact == path => {
                    *found = Some(directive);
                    return true;
                }
                Pattern::Prefix { prefix, ends_search }
                    if path.starts_with(&prefix)
                        && longest.as_ref().is_none_or(|(_, of, _)| prefix.len() > of.len()) =>
                {
                    longest = Some((directive, prefix, ends_search));
                }
                _ => {}
            }
        }
        let mut ends = false;
        if let Some((directive, _, ends_search)) = longest {
            *found = Some(directive);
            ends = ends_search;
            if nginx(directive, path, found) {
                return true;
            }
        }
        for (directive, pattern) in inner().filter(|_| !ends) {
            if let Pattern::Regexp(expression) = pattern
                && is_match(&expression, path)
            {
                *found = Some(directive);
                nginx(directive, path, found);
                return true;
            }
        }
        false
    }

    /// Numbers without an evident order: a linear congruential generator with Knuth's constants.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % end
        }

        fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
            of[self.below(of.len())]
        }
    }

    fn random_locations(random: &mut Numbers, prefix: &str, depth: usize, out: &mut String) {
        let mut taken = Vec::new();
        for _ in 0..random.below(4) {
            let longer = format!("{prefix}{}", random.one_of(&["a", "b", "/", "a/", "/b", "ab"]));
            let (head, inner) = match random.below(6) {
                0 => (format!("= {longer}"), None),
                1 => (format!("^~ {longer}"), Some(longer)),
                2 | 3 => (longer.clone(), Some(longer)),
                _ => (format!("~ {}", random.one_of(&["a$", "b", "/a", "ab"])), Some(prefix.to_owned())),
            };
            // nginx refuses the same path twice.
            let path = head.trim_start_matches("^~ ").to_owned();
            if taken.contains(&path) {
                continue;
            }
            taken.push(path);
            *out += &format!("location {head} {{ ");
            if let Some(inner) = inner.filter(|_| depth > 0) {
                random_locations(random, &inner, depth - 1, out);
            }
            *out += "} ";
        }
    }

    // nginx's documentation of `location`, and its `ngx_http_core_find_location` for locations within others.
    #[test]
    fn the_first_matching_location_is_that_of_nginx() {
        let mut random = Numbers(1);
        for _ in 0..3000 {
            let mut text = "server { ".to_owned();
            random_locations(&mut random, "/", 3, &mut text);
            text += "}";
            let parsed = parse(&text, "n", &NoFiles).unwrap();
            let found = Locations::of(&[&parsed[0]]);
            for _ in 0..20 {
                let length = random.below(6);
                let path: String =
                    ['/'].into_iter().chain((0..length).map(|_| random.one_of(&['a', 'b', '/']))).collect();
                let mut want = None;
                nginx(&parsed[0], &path, &mut want);
                let ours = found.chosen(&path).map(Location::own);
                let is_equal = match (ours, want) {
                    (Some(ours), Some(want)) => std::ptr::eq(ours, want),
                    (ours, want) => ours.is_none() && want.is_none(),
                };
                assert!(
                    is_equal,
                    "{text}\n{path}: {:?}, expected {:?}",
                    ours.map(Directive::text),
                    want.map(Directive::text)
                );
            }
        }
    }
}
