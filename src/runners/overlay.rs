//! Writes overlay files into a checked-out commit before anything runs. The commit may contain symlinks, so each folder
//! is opened relative to its parent folder and no symlink is followed.

use std::{
    io::{self, Write},
    os::fd::OwnedFd,
    path::Path,
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, mkdirat, open, openat, statat, unlinkat},
    io::Errno,
    path::Arg,
};

pub(super) const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FILE: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Writes `bytes` to a file below `root`, or removes the file if `bytes` is `None`. A file that was executable remains
/// executable.
pub(super) fn write_overlay_file(root: &Path, path: &str, bytes: Option<&[u8]>) -> io::Result<()> {
    let mut parts: Vec<&str> = path.split('/').collect();
    if parts.iter().any(|part| matches!(*part, "" | "." | "..") || part.eq_ignore_ascii_case(".git")) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let name = parts.pop().unwrap_or_default();
    let mut folder = open(root, FOLDER, Mode::empty())?;
    for part in parts {
        folder = match open_subfolder(&folder, part, bytes.is_some()) {
            // Nothing to remove.
            Err(Errno::NOENT) if bytes.is_none() => return Ok(()),
            folder => folder?,
        };
    }
    let mode = match statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) => {
            // A link itself is removed, not its target; a folder is refused.
            unlinkat(&folder, name, AtFlags::empty())?;
            let kind = FileType::from_raw_mode(there.st_mode);
            if kind == FileType::RegularFile { there.st_mode & 0o111 } else { 0 }
        }
        Err(Errno::NOENT) => 0,
        Err(error) => return Err(error.into()),
    };
    let Some(bytes) = bytes else { return Ok(()) };
    let file = openat(&folder, name, FILE, Mode::from_raw_mode(0o644 | mode))?;
    std::fs::File::from(file).write_all(bytes)
}

/// Opens a subfolder without following symlinks. If `make` is true, creates a missing subfolder.
pub(super) fn open_subfolder(folder: &OwnedFd, name: impl Arg + Copy, make: bool) -> Result<OwnedFd, Errno> {
    if make
        && let Err(error) = mkdirat(folder, name, Mode::from_raw_mode(0o755))
        && error != Errno::EXIST
    {
        return Err(error);
    }
    openat(folder, name, FOLDER, Mode::empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot continue should fail at once")]

    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::write_overlay_file;

    #[test]
    fn overlay_files_are_never_written_through_a_symlink() {
        let (tree, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (root, out) = (tree.path(), outside.path());
        fs::write(out.join("theirs"), "theirs").unwrap();
        symlink(out, root.join("away")).unwrap();
        symlink(out.join("theirs"), root.join("link")).unwrap();
        fs::create_dir(root.join("folder")).unwrap();
        fs::write(root.join("run.sh"), "old").unwrap();
        fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        for (path, bytes) in
            [("a/b/c.rs", Some("new")), ("run.sh", Some("new")), ("link", Some("new")), ("gone/x", None)]
        {
            write_overlay_file(root, path, bytes.map(str::as_bytes)).unwrap();
            assert_eq!(fs::read_to_string(root.join(path)).ok().as_deref(), bytes, "{path}");
        }
        assert_eq!(fs::metadata(root.join("run.sh")).unwrap().permissions().mode() & 0o777, 0o755);
        write_overlay_file(root, "a/b/c.rs", None).unwrap();
        assert!(!root.join("a/b/c.rs").exists() && !root.join("gone").exists());
        for bad in [
            "away/x",
            "away/theirs",
            "folder",
            "run.sh/x",
            "../x",
            "/x",
            "",
            "a//b",
            "./x",
            "a/.GIT/x",
            "a\0b",
        ] {
            assert!(write_overlay_file(root, bad, Some(b"new")).is_err(), "{bad}");
        }
        assert!(write_overlay_file(root, "away/theirs", None).is_err());
        assert_eq!(fs::read_to_string(out.join("theirs")).unwrap(), "theirs");
        assert_eq!(fs::read_dir(out).unwrap().count(), 1, "something was written through a link");
    }
}
