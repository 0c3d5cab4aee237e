package config

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"lapse/schemas"
)

// The key named rows is a file of several keys. The database identifies the file by its first line, which has no other use. Each
// further line has a month and its key, or says that the key was destroyed:
//
//	2f6c…
//	2026-10 destroyed
//	2026-11 91ab…
//
// In LAPSE_KEY_ROWS commas may replace line ends.

// monthsAhead is the number of months after the present one for which keys are made.
const monthsAhead = 12

const destroyedWord = "destroyed"

// firstLine returns the first line of a file that may have more lines.
func firstLine(text string) string {
	first, _, _ := strings.Cut(strings.ReplaceAll(strings.TrimSpace(text), ",", "\n"), "\n")
	return first
}

// EpochKeys reads the keys of the months. A former version's file has none.
func (s KeySource) EpochKeys() (schemas.EpochKeys, error) {
	if _, err := s.Load(RowsKey); err != nil { // its error says what is missing, and where it should be
		return nil, err
	}
	text, set := s.lookup(RowsKey)
	if !set {
		content, err := os.ReadFile(filepath.Join(s.Dir, string(RowsKey)))
		if err != nil {
			return nil, fmt.Errorf("load key %s: %w", RowsKey, err)
		}
		text = string(content)
	}
	keys, err := parseEpochKeys(text)
	if err != nil {
		return nil, fmt.Errorf("load key %s from %s: %w", RowsKey, s.Place(RowsKey), err)
	}
	return keys, nil
}

// parseEpochKeys reads the lines after the first. Its errors name lines, and never quote them.
func parseEpochKeys(text string) (schemas.EpochKeys, error) {
	keys := schemas.EpochKeys{}
	lines := strings.Split(strings.ReplaceAll(strings.TrimSpace(text), ",", "\n"), "\n")
	for i, line := range lines[1:] {
		month, secret, ok := strings.Cut(strings.TrimSpace(line), " ")
		epoch, err := schemas.ParseEpoch(month)
		if !ok || err != nil {
			return nil, fmt.Errorf("line %d: want a month such as 2026-11, and its key", i+2)
		}
		if _, twice := keys[epoch]; twice {
			return nil, fmt.Errorf("line %d: %s has a line before", i+2, epoch)
		}
		if secret == destroyedWord {
			keys[epoch] = nil
			continue
		}
		if keys[epoch], err = parseKey(secret); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+2, err)
		}
	}
	return keys, nil
}

func formatEpochKeys(first schemas.Key, keys schemas.EpochKeys) []byte {
	var b bytes.Buffer
	b.WriteString(hex.EncodeToString(first) + "\n")
	for _, epoch := range keys.Epochs() {
		secret := destroyedWord
		if key := keys[epoch]; key != nil {
			secret = hex.EncodeToString(key)
		}
		b.WriteString(string(epoch) + " " + secret + "\n")
	}
	return b.Bytes()
}

// addMonths makes the missing keys of others and of the months from the one before an instant up to a year after it.
func addMonths(keys schemas.EpochKeys, now time.Time, others ...schemas.Epoch) (added []schemas.Epoch, err error) {
	// The month before, too: a server's clock may be slow, and the slot may still have a day of that month.
	epoch := schemas.EpochOf(schemas.EpochOf(now).Begin().AddDate(0, -1, 0))
	for range monthsAhead + 2 {
		others = append(others, epoch)
		epoch = epoch.Next()
	}
	for _, epoch := range others {
		if _, is := keys[epoch]; is {
			continue
		}
		key := make(schemas.Key, schemas.MinKey)
		if _, err := rand.Read(key); err != nil {
			return nil, err
		}
		keys[epoch], added = key, append(added, epoch)
	}
	return added, nil
}

// AddMonths makes the keys that the file lacks: those of others, and of the months up to a year after an instant. It changes no existing key,
// and it does not make a destroyed one again.
func (s KeySource) AddMonths(now time.Time, others ...schemas.Epoch) (added []schemas.Epoch, err error) {
	err = s.changeEpochs(func(keys schemas.EpochKeys) (bool, error) {
		added, err = addMonths(keys, now, others...)
		return len(added) > 0, err
	})
	return added, err
}

// ErrNoEpoch says that a month has no key.
var ErrNoEpoch = errors.New("there is no key of this month")

// DestroyMonth replaces a month's key with a word that says so. Copies of the file still have the key.
func (s KeySource) DestroyMonth(epoch schemas.Epoch) error {
	return s.changeEpochs(func(keys schemas.EpochKeys) (bool, error) {
		if keys[epoch] == nil {
			return false, fmt.Errorf("%s: %w", epoch, ErrNoEpoch)
		}
		keys[epoch] = nil
		return true, nil
	})
}

// changeEpochs rewrites the file. A crash leaves the former file, and perhaps a temporary one, which makes later calls fail until it is removed.
func (s KeySource) changeEpochs(change func(schemas.EpochKeys) (bool, error)) (err error) {
	if _, set := s.lookup(RowsKey); set {
		return fmt.Errorf("%s is set: a variable cannot be changed from here; put its text into a file named rows, in a folder of keys, and leave it out",
			RowsKey.variable())
	}
	first, err := s.Load(RowsKey)
	if err != nil {
		return err
	}
	path := filepath.Join(s.Dir, string(RowsKey))
	next, err := os.OpenFile(filepath.Join(s.Dir, ".rows.next"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%w: another command changes the keys, or has died: if none runs, remove it", err)
	}
	if err != nil {
		return fmt.Errorf("change key %s: %w", RowsKey, err)
	}
	defer func() {
		_ = next.Close() // after an error; otherwise it is already closed
		if err != nil {
			_ = os.Remove(next.Name())
		}
	}()
	keys, err := s.EpochKeys() // no other process writes it from here on
	if err != nil {
		return err
	}
	if changed, err := change(keys); err != nil || !changed {
		return errors.Join(err, os.Remove(next.Name()))
	}
	if err := sameOwner(next, path); err != nil {
		return fmt.Errorf("change key %s: %w", RowsKey, err)
	}
	_, err = next.Write(formatEpochKeys(first, keys))
	if err = errors.Join(err, next.Sync(), next.Close()); err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("change key %s: %w", RowsKey, err)
	}
	return syncFolder(s.Dir)
}

// sameOwner gives a file the mode, owner and group of another file, so that the same users can read it.
func sameOwner(file *os.File, as string) error {
	info, err := os.Stat(as)
	if err != nil {
		return err
	}
	if owned, ok := info.Sys().(*syscall.Stat_t); ok {
		mine, err := file.Stat()
		if err != nil {
			return err
		}
		if m, is := mine.Sys().(*syscall.Stat_t); is && (m.Uid != owned.Uid || m.Gid != owned.Gid) {
			if err := file.Chown(int(owned.Uid), int(owned.Gid)); err != nil {
				return err
			}
		}
	}
	return file.Chmod(info.Mode().Perm())
}
