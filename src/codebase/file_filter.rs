//! Decides which files of a commit a model may see, by path, kind, size, `.gitattributes` and content.
//!
//! Tracked files that match `.gitignore` are not excluded, because a person added them on purpose. Generated and
//! vendored files are recognized by name, folder or content and are excluded, unless an attribute says otherwise
//! (`linguist-generated=false`, `-linguist-vendored`).

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use super::{Language, tree::file_name};
use crate::{
    documents::is_invisible,
    git::{EntryMode, GitAttributes},
};

/// Attributes that mark a file as generated or vendored (used by GitHub), or as binary (git's `-diff`).
pub(super) const ATTRIBUTES: [&str; 3] = ["linguist-generated", "linguist-vendored", "diff"];

/// Minimum size, in bytes, of a text that can be classified as minified.
const MINIFIED_LEAST: usize = 2_000;
const MINIFIED_MEAN_LINE: usize = 400;
const MINIFIED_LINE: usize = 20_000;

/// Maximum size, in bytes, of a source file that is indexed.
const INDEX_LARGEST_CODE: u64 = 1024 * 1024;
const INDEX_LARGEST_DATA: u64 = 256 * 1024;

/// Reasons why a file is never shown to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ExclusionReason {
    Symlink,
    Submodule,
    /// The path is not valid text, or it contains characters with which it could forge lines of the context.
    Name,
    Secret,
    Vendored,
    Generated,
    Minified,
    Binary,
    Encoding,
    /// The file is a Git LFS pointer; the actual content is stored elsewhere.
    LfsPointer,
    TooLarge,
    /// The file exceeds the maximum number of files or bytes per repository.
    TooMany,
    /// The file's blob is missing from this clone.
    Absent,
}

impl fmt::Display for ExclusionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Symlink => "a symbolic link, which is not followed",
            Self::Submodule => "a submodule",
            Self::Name => "its name is not plain text",
            Self::Secret => "looks like it holds a secret",
            Self::Vendored => "vendored",
            Self::Generated => "generated",
            Self::Minified => "minified",
            Self::Binary => "binary",
            Self::Encoding => "not UTF-8",
            Self::LfsPointer => "a pointer to large file storage",
            Self::TooLarge => "too large",
            Self::TooMany => "beyond the files that are read of one repository",
            Self::Absent => "missing from this copy of the repository, as in a clone with `--filter`",
        })
    }
}

/// Settings for reading a file that is not excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileTreatment {
    /// Language detected from the file's name. The file's text may change this result.
    pub(super) language: Language,
    /// Whether an attribute says that the file is written by hand. If so, the text is not checked for signs of
    /// generated or minified code.
    pub(super) by_hand: bool,
}

/// Filter that is applied to the files of one commit before they are read.
#[derive(Debug, Default)]
pub(super) struct FileFilter {
    attributes: GitAttributes<3>,
    /// Build output folders, derived from the manifests in their parent folders.
    outputs: BTreeSet<String>,
}

impl FileFilter {
    pub(super) fn new<'p>(paths: impl Iterator<Item = &'p str>, attributes: GitAttributes<3>) -> Self {
        let mut outputs = BTreeSet::new();
        for path in paths {
            let name = file_name(path);
            for (_, folders) in BUILDS.iter().filter(|(manifests, _)| list_contains(manifests, name)) {
                let place = &path[..path.len() - name.len()];
                outputs.extend(folders.split(' ').map(|folder| format!("{place}{folder}").to_lowercase()));
            }
        }
        Self { attributes, outputs }
    }

    /// Returns the settings for reading a file, or the reason for excluding it.
    pub(super) fn classify_file(
        &self,
        path: &str,
        mode: EntryMode,
        size: u64,
    ) -> Result<FileTreatment, ExclusionReason> {
        match mode {
            EntryMode::Symlink => return Err(ExclusionReason::Symlink),
            EntryMode::Submodule => return Err(ExclusionReason::Submodule),
            EntryMode::File | EntryMode::Executable => {}
        }
        let lost = |part: &str| matches!(part, "" | "." | "..");
        if path.chars().any(is_unprintable) || path.split('/').any(lost) {
            return Err(ExclusionReason::Name);
        }
        let [generated, vendored, diff] = self.attributes.get(path).copied().unwrap_or_default();
        let (language, lower) = (Language::from_path(path), path.to_lowercase());
        let name = file_name(&lower);
        match () {
            () if is_secret_path(path) => Err(ExclusionReason::Secret),
            () if diff == Some(false) => Err(ExclusionReason::Binary),
            () if vendored.unwrap_or_else(|| is_vendored(&lower, language)) => Err(ExclusionReason::Vendored),
            () if generated.unwrap_or_else(|| self.is_generated(&lower, name, language)) => {
                Err(ExclusionReason::Generated)
            }
            () if diff.is_none() && has_ending(name, BINARY_ENDINGS) => Err(ExclusionReason::Binary),
            () if size > max_indexed_bytes(language) => Err(ExclusionReason::TooLarge),
            () => Ok(FileTreatment { language, by_hand: generated == Some(false) }),
        }
    }

    fn is_generated(&self, lower: &str, name: &str, language: Language) -> bool {
        let mut folders = lower.match_indices('/').map(|(at, _)| &lower[..at]);
        name.ends_with(".lock")
            || list_contains(GENERATED_NAMES, name)
            || ends_with_any(name, GENERATED_ENDINGS)
            || name.starts_with("zz_generated.")
            || folders.any(|folder| match file_name(folder) {
                "__snapshots__" | "__pycache__" => true,
                "snapshots" => !language.is_code(),
                _ => self.outputs.contains(folder),
            })
    }
}

/// Returns a file's text without its byte order mark, or the reason for excluding the content.
pub(super) fn decode_text(bytes: &[u8], by_hand: bool) -> Result<&str, ExclusionReason> {
    if bytes.starts_with(b"version https://git-lfs.github.com/spec/") {
        return Err(ExclusionReason::LfsPointer);
    }
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(ExclusionReason::Encoding);
    }
    if bytes.contains(&0) {
        return Err(ExclusionReason::Binary);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| ExclusionReason::Encoding)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match () {
        () if by_hand => Ok(text),
        () if has_generated_marker(text) => Err(ExclusionReason::Generated),
        () if is_minified(text) => Err(ExclusionReason::Minified),
        () => Ok(text),
    }
}

/// Returns whether a comment in the first 20 lines marks the file as generated. The marker may come after a license
/// text. Markers in quotes are ignored.
fn has_generated_marker(text: &str) -> bool {
    let comments = text.lines().take(20).map(str::trim_start);
    let mut generated = false;
    comments.filter(|line| COMMENTS.iter().any(|mark| line.starts_with(mark))).any(|line| {
        let lower = line.to_lowercase();
        let mentions = |words: &str| {
            lower.match_indices(words).any(|(at, _)| !lower[..at].ends_with(['`', '"', '\'', '“', '‘']))
        };
        generated |= mentions("generated");
        mentions("@generated") || (generated && (mentions("do not edit") || mentions("do not modify")))
    })
}

/// Whether the lines are too long to be written by hand. Prose with one line per paragraph stays far below the limits.
fn is_minified(text: &str) -> bool {
    let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
    text.len() > MINIFIED_LEAST
        && (text.len() / lines > MINIFIED_MEAN_LINE
            || text.len() > MINIFIED_LINE && text.lines().any(|line| line.len() > MINIFIED_LINE))
}

fn max_indexed_bytes(language: Language) -> u64 {
    if language.is_code() { INDEX_LARGEST_CODE } else { INDEX_LARGEST_DATA }
}

/// Whether a character could break the line that contains it, reverse the text direction, or be invisible to people but
/// not to a model.
pub(super) fn is_unprintable(c: char) -> bool {
    c.is_control() || is_invisible(c) || matches!(c, '\u{2028}' | '\u{2029}' | char::REPLACEMENT_CHARACTER)
}

fn has_ending(name: &str, endings: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, ending)| list_contains(endings, ending))
}

/// Whether the path looks like that of a file that contains secrets.
pub fn is_secret_path(path: &str) -> bool {
    let path = path.to_lowercase();
    let name = file_name(&path);
    let sample = name.ends_with(".example") || name.ends_with(".sample") || name.ends_with(".template");
    let env =
        (matches!(name, ".env" | ".envrc") || name.starts_with(".env.") || name.ends_with(".env")) && !sample;
    env || ends_with_any(name, SECRET_ENDINGS)
        || list_contains(SECRET_NAMES, name)
        || ["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"].iter().any(|beginning| name.starts_with(beginning))
        || path.ends_with(".docker/config.json")
        || path.ends_with(".kube/config")
        || name.rsplit_once('.').is_some_and(|(stem, ending)| {
            let word = stem.split(['.', '-', '_']).next().unwrap_or_default();
            matches!(word, "secret" | "secrets" | "credentials") && list_contains(SETTINGS_ENDINGS, ending)
        })
        || path.split('/').any(|part| matches!(part, ".ssh" | ".aws" | ".gnupg"))
}

/// Returns whether a path is in a folder of third-party code. In JVM languages, folders below `src` are not checked,
/// because they are packages and packages can have any name.
fn is_vendored(lower: &str, language: Language) -> bool {
    let packages = language == Language::Java || has_ending(lower, "kt scala groovy");
    let parents = || lower.rsplit_once('/').map_or("", |(folders, _)| folders).split('/');
    let folders = parents().take_while(|folder| !(packages && *folder == "src"));
    parents().next() == Some("deps") || { folders }.any(|folder| list_contains(VENDORED_FOLDERS, folder))
}

/// Build manifests, each with the names of the output folders that the build creates next to the manifest.
const BUILDS: &[(&str, &str)] = &[
    ("Cargo.toml pom.xml build.sbt", "target"),
    ("build.gradle build.gradle.kts", "build out"),
    ("package.json", "dist build out coverage"),
    ("pyproject.toml setup.py", "dist build"),
    ("CMakeLists.txt", "build"),
    ("mix.exs dune-project", "_build deps"),
];

fn list_contains(list: &str, word: &str) -> bool {
    list.split(' ').any(|known| known == word)
}

fn ends_with_any(name: &str, endings: &str) -> bool {
    endings.split(' ').any(|ending| name.ends_with(ending))
}

const VENDORED_FOLDERS: &str = "node_modules bower_components jspm_packages vendor third_party third-party thirdparty 3rdparty godeps \
     pods carthage site-packages .venv .yarn .git";

const GENERATED_NAMES: &str = "package-lock.json npm-shrinkwrap.json pnpm-lock.yaml packages.lock.json go.sum go.work.sum \
     gradle.lockfile package.resolved .terraform.lock.hcl gradlew gradlew.bat mvnw mvnw.cmd";

const GENERATED_ENDINGS: &str = ".min.js .min.mjs .min.css .js.map .mjs.map .cjs.map .ts.map .css.map .snap .pb.go .pb.cc .pb.h \
     _pb2.py _pb2.pyi _pb2_grpc.py _generated.go .designer.cs .g.cs .g.dart .freezed.dart";

const SECRET_ENDINGS: &str =
    ".pem .key .p12 .pfx .jks .keystore .kdbx .ppk .tfvars .tfvars.json .tfstate .tfstate.backup";

const SECRET_NAMES: &str = ".npmrc .netrc .pypirc .pgpass .htpasswd .git-credentials .dockercfg .dockerconfigjson credentials \
     kubeconfig";

/// Extensions of settings files. A file named `secrets` is treated as secret only if it has one of these extensions,
/// because `secrets.rs`, for example, is code.
const SETTINGS_ENDINGS: &str = "yaml yml json toml txt ini cfg conf properties xml";

const COMMENTS: &[&str] = &["//", "#", "/*", "*", "--", ";", "<!--", "\"\"\"", "'''", "%", "dnl"];

const BINARY_ENDINGS: &str = "png jpg jpeg gif webp ico bmp tiff svgz pdf zip gz tgz bz2 xz zst 7z jar war class so dylib dll exe a \
     o wasm woff woff2 ttf otf eot mp3 mp4 mov webm ogg wav flac sqlite db bin dat parquet pyc psd docx \
     xlsx pptx lockb";

#[cfg(test)]
mod tests {
    use super::*;

    fn filter() -> FileFilter {
        let attributes = [
            ("vendor/ours/x.rs", [None, Some(false), None]),
            ("Cargo.lock", [Some(false), None, None]),
            ("api.rs", [Some(true), None, None]),
            ("legacy/x.rs", [None, Some(true), None]),
            ("a.blob", [None, None, Some(false)]),
            ("plain.dat", [None, None, Some(true)]),
        ];
        let attributes =
            attributes.into_iter().map(|(path, attributes)| (path.to_owned(), attributes)).collect();
        FileFilter::new(["Cargo.toml", "web/package.json"].into_iter(), attributes)
    }

    #[test]
    fn paths_are_excluded_as_secret_generated_vendored_binary_or_badly_named() {
        let judge = |path: &str| filter().classify_file(path, EntryMode::File, 10).err();
        for (why, paths) in [
            (
                Some(ExclusionReason::Secret),
                ".env deploy/prod.env certs/server.PEM home/.aws/config config/secrets.yml \
                 config/secrets.prod.yml .envrc home/.docker/config.json home/.kube/config prod.tfvars",
            ),
            (
                None,
                ".env.example src/secrets.rs Cargo.lock vendor/ours/x.rs src/deps/lua.c \
                 orm/src/main/java/org/x/vendor/Adapter.java src/build.rs aop/target/Source.java \
                 build/package.sh src/snapshots/mod.rs plain.dat levels/first.map src/lib.rs",
            ),
            (Some(ExclusionReason::Name), "../a.rs /a.rs src//a.rs"),
            (
                Some(ExclusionReason::Generated),
                "go.sum api.rs target/debug/x.rs web/dist/app.js src/snapshots/a.txt app.js.map",
            ),
            (
                Some(ExclusionReason::Vendored),
                "web/node_modules/x/index.js web/Vendor/x.js vendor/theirs/x.rs legacy/x.rs deps/lua/lua.c \
                 vendor/x/src/main/java/A.java",
            ),
            (Some(ExclusionReason::Binary), "logo.png a.blob a.dat"),
        ] {
            for path in paths.split(' ') {
                assert_eq!(judge(path), why, "{path}");
            }
        }
        for path in
            ["a\nb.rs", "a\u{2028}b.rs", "a\u{202e}b.rs", "a\u{200b}b.rs", "a\u{e0041}b.rs", "latin-\u{fffd}"]
        {
            assert_eq!(judge(path), Some(ExclusionReason::Name), "{path}");
        }
        assert_eq!(judge("a \"quoted\" `name`.rs"), None);
        let judge = |path, mode, size| filter().classify_file(path, mode, size).err();
        assert_eq!(judge("data.json", EntryMode::File, 10_000_000), Some(ExclusionReason::TooLarge));
        assert_eq!(judge("lib.rs", EntryMode::Executable, 400_000), None);
        assert_eq!(judge("link", EntryMode::Symlink, 1), Some(ExclusionReason::Symlink));
        assert_eq!(judge("sub", EntryMode::Submodule, 0), Some(ExclusionReason::Submodule));
    }

    #[test]
    fn binary_generated_and_misencoded_files_are_excluded() {
        let judge = |bytes: &[u8]| decode_text(bytes, false).map(str::to_owned);
        assert_eq!(judge(b"a\0b"), Err(ExclusionReason::Binary));
        assert_eq!(judge(b"\xff\xfea\0"), Err(ExclusionReason::Encoding), "UTF-16");
        assert_eq!(judge(b"# \xe9t\xe9\n"), Err(ExclusionReason::Encoding), "Latin-1");
        assert_eq!(judge(b"\xef\xbb\xbfclass A\r\n"), Ok("class A\r\n".into()));
        assert_eq!(judge("plain é".as_bytes()), Ok("plain é".into()));
        let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 3\n";
        assert_eq!(judge(pointer), Err(ExclusionReason::LfsPointer));
        for generated in [
            "// Code generated by x. DO NOT EDIT.\n",
            "/*\n * License\n * @generated by tool\n */\n",
            "# This file is automatically generated by make, do not edit.\n",
            "<!-- DO NOT EDIT: generated by docs -->\n",
            "/**\n * Autogenerated by Thrift\n *\n * DO NOT EDIT UNLESS YOU ARE SURE\n */\n",
            "// Not `@generated` by hand, but\n// @generated\n",
        ] {
            assert_eq!(judge(generated.as_bytes()), Err(ExclusionReason::Generated), "{generated}");
            assert_eq!(decode_text(generated.as_bytes(), true), Ok(generated));
        }
        for written in [
            "//! Knows `@generated` and 'code generated by'.\n",
            "let mark = \"@generated\";\n",
            "// Reads code generated by protoc.\n",
            "# DO NOT EDIT below this line\n",
            "# generated later\n",
        ] {
            assert!(judge(written.as_bytes()).is_ok(), "{written}");
        }
        assert_eq!(judge("var a=1;".repeat(1_000).as_bytes()), Err(ExclusionReason::Minified));
        let prose = format!("{}\n\n", "A long paragraph in one line. ".repeat(20)).repeat(30);
        assert!(judge(prose.as_bytes()).is_ok());
        let one_line_too_long = format!("{}let a = \"{}\";\n", "let b;\n".repeat(9_000), "x".repeat(30_000));
        assert_eq!(judge(one_line_too_long.as_bytes()), Err(ExclusionReason::Minified));
    }
}
