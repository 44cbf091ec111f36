//! Parses `CODEOWNERS` as GitHub does.

/// Possible paths of a `CODEOWNERS` file. GitHub uses the first path that exists.
pub const PLACES: [&str; 3] = [".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS"];

/// An owner of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeOwner {
    Person(String),
    Team {
        organization: String,
        team: String,
    },
    /// An e-mail address, or any other text that cannot be mapped to a GitHub user.
    Other(String),
}

impl CodeOwner {
    /// Returns the owner in the notation of the file.
    pub fn file_notation(&self) -> String {
        match self {
            Self::Person(login) => format!("@{login}"),
            Self::Team { organization, team } => format!("@{organization}/{team}"),
            Self::Other(text) => text.clone(),
        }
    }

    fn parse(word: &str) -> Self {
        let sound = |name: &str| {
            !name.starts_with('.')
                && !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        };
        match word.strip_prefix('@').map(|name| name.split_once('/').ok_or(name)) {
            Some(Err(login)) if sound(login) => Self::Person(login.to_owned()),
            Some(Ok((organization, team))) if sound(organization) && sound(team) => {
                Self::Team { organization: organization.to_owned(), team: team.to_owned() }
            }
            _ => Self::Other(word.to_owned()),
        }
    }
}

/// Rules of a `CODEOWNERS` file.
#[derive(Debug, Default)]
pub struct CodeOwners(Vec<(OwnersPattern, Vec<CodeOwner>)>);

impl CodeOwners {
    /// Parses the file. Skips lines with an invalid pattern, as GitHub does.
    pub fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(parse_rule).collect())
    }

    /// Returns the owners of a file. The last matching rule decides, and that rule may name no owners.
    pub fn owners_of(&self, path: &str) -> &[CodeOwner] {
        let path: Vec<&str> = path.split('/').collect();
        let rule = self.0.iter().rev().find(|(pattern, _)| matches_path(&pattern.0, &path));
        rule.map_or(&[], |(_, owners)| owners)
    }
}

/// Pattern of a rule, as segments of a path from the repository's root.
#[derive(Debug)]
struct OwnersPattern(Vec<OwnersPatternSegment>);

#[derive(Debug, PartialEq)]
enum OwnersPatternSegment {
    /// Any number of directories (`**`). At the end of a pattern, everything below the directory matches.
    DoubleStar,
    /// Name pattern of literal characters and wildcards.
    Name(Vec<OwnersPatternToken>),
}

#[derive(Debug, PartialEq, Clone, Copy)]
enum OwnersPatternToken {
    Literal(char),
    QuestionMark,
    Star,
}

fn parse_rule(line: &str) -> Option<(OwnersPattern, Vec<CodeOwner>)> {
    let (pattern, rest) = split_pattern(line.trim());
    let owners = rest.split_whitespace().take_while(|word| !word.starts_with('#')).map(CodeOwner::parse);
    Some((OwnersPattern::parse(&pattern)?, owners.collect()))
}

/// Splits a line at the first unescaped space. Returns the characters before the space, each with a flag that says
/// whether it was escaped, and the rest of the line.
fn split_pattern(line: &str) -> (Vec<(char, bool)>, &str) {
    let (mut signs, mut escaped) = (Vec::new(), false);
    for (at, sign) in line.char_indices() {
        match sign {
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            sign if sign.is_whitespace() && !escaped => return (signs, &line[at..]),
            sign => signs.push((sign, escaped)),
        }
        escaped = false;
    }
    (signs, "")
}

impl OwnersPattern {
    fn parse(signs: &[(char, bool)]) -> Option<Self> {
        let plain = |wanted: char| move |sign: &(char, bool)| *sign == (wanted, false);
        // GitHub does not support negation or character ranges; `#` starts a comment.
        let foreign = matches!(signs.first(), None | Some(('#' | '!', _))) || signs.iter().any(plain('['));
        if foreign {
            return None;
        }
        let mut parts: Vec<&[(char, bool)]> = signs.split(plain('/')).collect();
        let whole = parts.len() == 1 || (parts.len() == 2 && parts[1].is_empty());
        let below = parts.len() > 1 && parts.last().is_some_and(|part| part.is_empty());
        if below {
            parts.pop();
        }
        let rooted = parts.first().is_some_and(|part| part.is_empty());
        if rooted {
            parts.remove(0);
        }
        if parts.is_empty() || parts.iter().any(|part| part.is_empty()) {
            return None;
        }
        let mut segments: Vec<_> = parts.into_iter().map(OwnersPatternSegment::parse).collect();
        if whole && !rooted {
            segments.insert(0, OwnersPatternSegment::DoubleStar);
        }
        // A name matches a file, or a directory with its contents; `docs/*` matches only files in `docs`.
        let star = OwnersPatternSegment::Name(vec![OwnersPatternToken::Star]);
        if below || (segments.last() != Some(&star) || segments == [OwnersPatternSegment::DoubleStar, star]) {
            segments.push(OwnersPatternSegment::DoubleStar);
        }
        if below {
            segments.push(OwnersPatternSegment::Name(vec![
                OwnersPatternToken::QuestionMark,
                OwnersPatternToken::Star,
            ]));
        }
        Some(Self(segments))
    }
}

impl OwnersPatternSegment {
    fn parse(part: &[(char, bool)]) -> Self {
        if part == [('*', false), ('*', false)] {
            return Self::DoubleStar;
        }
        let sign = |sign: &(char, bool)| match sign {
            ('*', false) => OwnersPatternToken::Star,
            ('?', false) => OwnersPatternToken::QuestionMark,
            (sign, _) => OwnersPatternToken::Literal(*sign),
        };
        Self::Name(part.iter().map(sign).collect())
    }
}

fn matches_path(pattern: &[OwnersPatternSegment], path: &[&str]) -> bool {
    let any = |segment: &OwnersPatternSegment| *segment == OwnersPatternSegment::DoubleStar;
    let is = |segment: &OwnersPatternSegment, at: usize| matches!(segment, OwnersPatternSegment::Name(signs) if matches_name(signs, path[at]));
    matches_all(pattern, path.len(), any, is)
}

fn matches_name(signs: &[OwnersPatternToken], name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    let is = |sign: &OwnersPatternToken, at: usize| {
        matches!(sign, OwnersPatternToken::QuestionMark) || *sign == OwnersPatternToken::Literal(name[at])
    };
    matches_all(signs, name.len(), |sign| *sign == OwnersPatternToken::Star, is)
}

/// Returns whether a pattern matches the whole sequence of items. A part for which `any` is true matches any number of
/// items. Any other part matches one item, for which `is` returns true. All possible positions are tracked at once, so
/// that many wildcards do not make matching slow.
fn matches_all<P>(
    pattern: &[P],
    items: usize,
    any: impl Fn(&P) -> bool,
    is: impl Fn(&P, usize) -> bool,
) -> bool {
    let mut reached = vec![false; items + 1];
    reached[0] = true;
    for part in pattern {
        if any(part) {
            let first = reached.iter().position(|reached| *reached).unwrap_or(reached.len());
            reached[first..].fill(true);
        } else {
            reached = (0..=items).map(|at| at > 0 && reached[at - 1] && is(part, at - 1)).collect();
        }
    }
    reached[items]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codeowners_patterns_match_the_same_files_as_on_github() {
        for (pattern, about, not_about) in [
            ("*", "a.rs b/c.rs", ""),
            ("*.rs", "a.rs b/c.rs", "a.rsx b/rs"),
            ("/build/logs/", "build/logs/x build/logs/a/b", "build/logs x/build/logs/y"),
            ("docs/*", "docs/a.md", "docs/b/c.md x/docs/a.md"),
            ("apps/", "apps/a apps/b/c x/apps/y", "apps x/apps"),
            ("/docs", "docs docs/a/b", "x/docs"),
            ("src/a", "src/a src/a/b.rs", "x/src/a src/ab"),
            ("**/logs", "logs build/logs/a x/y/logs", "log"),
            ("src/**/test.rs", "src/test.rs src/a/b/test.rs", "test.rs src/test.rs.bak"),
            ("/src/**", "src/a src/b/c", "x/src/a"),
            ("a\\ b.md", "a\u{20}b.md", "a b.md.x"),
            ("file?.c", "file1.c", "file.c file12.c"),
        ] {
            let rules = CodeOwners::parse(&format!("{pattern} @ann"));
            let owned = |path: &str| rules.owners_of(path) == [CodeOwner::Person("ann".into())];
            let split = if pattern.contains(' ') { '\n' } else { ' ' };
            for path in about.split(split).filter(|path| !path.is_empty()) {
                assert!(owned(path), "{pattern} is about {path}");
            }
            for path in not_about.split(split).filter(|path| !path.is_empty()) {
                assert!(!owned(path), "{pattern} is not about {path}");
            }
        }
    }

    #[test]
    fn last_matching_codeowners_rule_wins_even_without_an_owner() {
        let rules = CodeOwners::parse(
            "# everything\n*  @ann @octo/core  # the rest\n\n!src/x @eve\nsrc/[ab] @eve\n/src/  docs@octo.example\n/src/free\n",
        );
        let names =
            |path: &str| rules.owners_of(path).iter().map(CodeOwner::file_notation).collect::<Vec<_>>();
        assert_eq!(names("README.md"), ["@ann", "@octo/core"]);
        assert_eq!(
            rules.owners_of("x")[1],
            CodeOwner::Team { organization: "octo".into(), team: "core".into() }
        );
        assert_eq!(rules.owners_of("src/a"), [CodeOwner::Other("docs@octo.example".into())]);
        assert_eq!(names("src/free/a.rs"), [""; 0]);
        assert_eq!(CodeOwners::parse("@ann\n/\n//a @b\n@../.. @c/../d").owners_of("a"), []);
        // The number of stars does not matter.
        let stars = CodeOwners::parse(&format!("{}b @ann", "*a".repeat(500)));
        assert!(stars.owners_of(&"a".repeat(2000)).is_empty());
    }
}
