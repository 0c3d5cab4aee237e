package pgserver

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"lapse/internal/child"
)

// reachPrograms finds a place where the server's account may run the install from. Below a private folder (a clone in
// /root) it may not: then the install is linked, or copied, into a folder of this server's own. A link costs 20 ms.
func (s *Server) reachPrograms() (err error) {
	s.binDir = s.install.BinDir
	if s.account.Passes(s.binDir) {
		return nil
	}
	if s.programs, err = child.NewProgramFolder("pgbin"); err != nil {
		return err
	}
	if err := s.account.Own(s.programs.Path); err != nil {
		return err
	}
	s.binDir = filepath.Join(s.programs.Path, "bin")
	return mirror(filepath.Dir(s.install.BinDir), s.programs.Path)
}

// mirror makes the files below from appear below to.
func mirror(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		switch {
		case entry.IsDir():
			return os.MkdirAll(target, 0o755)
		case entry.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case os.Link(path, target) == nil:
			return nil
		default: // Another file system.
			return copyFile(path, target)
		}
	})
}

func copyFile(from, to string) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}
