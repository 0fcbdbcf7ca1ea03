//! Which location does nginx choose? Puts the locations of a server into an order in which the first match is nginx's.

use regex::Regex;

use crate::parse::Directive;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// `= /path`
    Exact(String),
    /// `/path`, or `^~ /path`, which ends the search.
    Prefix { prefix: String, last: bool },
    /// `~`, or `~*` with `(?i)`.
    Regexp(String),
    /// `@name`
    Named(String),
}

/// A location, with those around it.
#[derive(Debug, Clone)]
pub(crate) struct Location<'a> {
    pub(crate) pattern: Pattern,
    /// The blocks around it and its own, from the outermost on.
    pub(crate) blocks: Vec<&'a Directive>,
    /// A prefix that the path must have in addition: that of the location around an expression.
    pub(crate) within: Option<String>,
    /// Longer prefixes whose requests go to other locations, although this one is earlier in the list.
    pub(crate) except: Vec<String>,
}

/// Returns the pattern of a location, or the reason why it has none.
pub(crate) fn pattern(directive: &Directive) -> Result<Pattern, String> {
    let prefix = |text: &str, last| Pattern::Prefix { prefix: text.to_owned(), last };
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

/// Returns the locations of a server without the named ones, in the order of precedence: exact paths; expressions within a
/// prefix, which nginx looks at first once that prefix is the longest that matches; prefixes that end the search; other expressions as they
/// are written; prefixes, the longest first.
pub(crate) fn in_order<'a>(all: &[Location<'a>]) -> Vec<Location<'a>> {
    let mut ordered: Vec<Location<'a>> = Vec::new();
    ordered.extend(all.iter().filter(|l| matches!(l.pattern, Pattern::Exact(_))).cloned());
    let mut prefixes: Vec<&Location<'a>> = all.iter().filter(|l| matches!(l.pattern, Pattern::Prefix { .. })).collect();
    prefixes.sort_by_key(|l| std::cmp::Reverse(l.prefix().len()));
    let regexps = all.iter().filter(|l| matches!(l.pattern, Pattern::Regexp(_)));
    let (mut inner, outer): (Vec<_>, Vec<_>) = regexps.cloned().partition(|l| l.within.is_some());
    for location in &mut inner {
        let own = location.within.clone().unwrap_or_default();
        let around = location.blocks[location.blocks.len() - 2];
        let longer = prefixes.iter().filter(|other| {
            // The expression comes before the prefixes beside it.
            let is_beside = other.blocks.iter().any(|block| std::ptr::eq(*block, around));
            let is_later = is_beside && matches!(other.pattern, Pattern::Prefix { last: false, .. });
            other.prefix().len() > own.len() && other.prefix().starts_with(&own) && !is_later
        });
        location.except = longer.map(|other| other.prefix().to_owned()).collect();
    }
    ordered.extend(inner);
    for location in prefixes.iter().filter(|l| l.ends_search()) {
        let mut location = (*location).clone();
        let own = location.prefix().to_owned();
        let longer = prefixes.iter().filter(|other| {
            !other.ends_search() && other.prefix().len() > own.len() && other.prefix().starts_with(&own)
        });
        location.except = longer.map(|other| other.prefix().to_owned()).collect();
        ordered.push(location);
    }
    ordered.extend(outer);
    ordered.extend(prefixes.into_iter().filter(|l| !l.ends_search()).cloned());
    ordered
}

impl Location<'_> {
    /// Whether it is within `^~`, or has it itself: the expressions outside are not looked at.
    fn ends_search(&self) -> bool {
        let ends = |block: &&Directive| {
            block.name == "location" && matches!(pattern(block), Ok(Pattern::Prefix { last: true, .. }))
        };
        self.blocks.iter().any(ends)
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
        let within = self.within.as_deref().is_none_or(|prefix| path.starts_with(prefix));
        let own = match &self.pattern {
            Pattern::Exact(exact) => path == exact,
            Pattern::Prefix { prefix, .. } => path.starts_with(prefix.as_str()),
            Pattern::Regexp(expression) => Regex::new(expression).is_ok_and(|regex| regex.is_match(path)),
            Pattern::Named(_) => false,
        };
        within && own && !self.except.iter().any(|other| path.starts_with(other.as_str()))
    }
}
