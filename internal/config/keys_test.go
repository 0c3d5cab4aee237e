package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lapse/internal/config"
	"lapse/schemas"
)

func keysIn(t *testing.T, dir string, env config.Environment) config.KeySource {
	t.Helper()
	s, err := config.Load("", config.Overrides{Database: "postgres://a@b/c", Keys: dir}, env)
	if err != nil {
		t.Fatal(err)
	}
	return s.Keys
}

func TestKeysAreMadeOnceAndNeverOverwritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "keys")
	keys := keysIn(t, dir, nothing)
	made, err := keys.Make()
	if err != nil || fmt.Sprint(made) != "[tag log rows hash]" {
		t.Fatalf("made %v, %v", made, err)
	}
	before := map[config.KeyName]string{}
	for _, name := range config.KeyNames() {
		info, err := os.Stat(filepath.Join(dir, string(name)))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %04o", name, info.Mode().Perm())
		}
		key, err := keys.Load(name)
		if err != nil || len(key) != schemas.MinKey {
			t.Fatalf("load %s: %d bytes, %v", name, len(key), err)
		}
		before[name] = string(key)
	}
	if err := os.Remove(filepath.Join(dir, "rows")); err != nil {
		t.Fatal(err)
	}
	if made, err = keys.Make(); err != nil || fmt.Sprint(made) != "[rows]" {
		t.Fatalf("made %v, %v", made, err)
	}
	for _, name := range config.KeyNames() {
		key, err := keys.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if (string(key) == before[name]) == (name == config.RowsKey) {
			t.Errorf("%s: only the missing key was to be made", name)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 4 {
		t.Errorf("%d files in the folder, %v", len(entries), err)
	}
}

// Whose a file is decides, whether the group that may read it was given it on purpose. Only root can give files away: as another user the test
// has files of its own alone.
func TestAKeyThatOthersMayUseIsRefusedWithTheFix(t *testing.T) {
	dir := t.TempDir()
	keys := keysIn(t, dir, nothing)
	if _, err := keys.Make(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "tag")
	const nobodys = 54321
	for _, c := range []struct {
		mode     os.FileMode
		uid, gid int
		fine     bool
	}{
		{0o400, -1, -1, true},
		{0o440, -1, -1, true},
		{0o640, -1, -1, true},
		{0o604, -1, -1, false},
		{0o644, -1, -1, false},
		{0o444, -1, -1, false},
		{0o620, -1, -1, false},
		{0o660, -1, -1, false},
		{0o450, -1, -1, false},
		{0o440, 0, nobodys, true},
		{0o440, nobodys, os.Getegid(), true},
		{0o440, nobodys, nobodys, false},
		{0o460, 0, 0, false},
		{0o600, nobodys, nobodys, true},
	} {
		if c.uid >= 0 && os.Geteuid() != 0 {
			continue
		}
		if err := errors.Join(os.Chmod(path, c.mode), os.Chown(path, c.uid, c.gid)); err != nil {
			t.Fatal(err)
		}
		_, err := keys.Load(config.TagKey)
		if refused := err != nil && strings.Contains(err.Error(), "chmod 600 "+path); refused == c.fine || c.fine && err != nil {
			t.Errorf("mode %04o of %d:%d: %v", c.mode, c.uid, c.gid, err)
		}
	}
}

func TestAMissingKeySaysHowToMakeIt(t *testing.T) {
	dir := t.TempDir()
	_, err := keysIn(t, dir, nothing).Load(config.TagKey)
	if !errors.Is(err, config.ErrNoKey) || !strings.Contains(err.Error(), "lapse init --keys "+dir) {
		t.Errorf("got %v", err)
	}
}

func TestAKeyOfTheEnvironmentStandsAboveItsFile(t *testing.T) {
	secret := strings.Repeat("ab", schemas.MinKey)
	keys := keysIn(t, t.TempDir(), variables(map[string]string{"LAPSE_KEY_TAG": secret}))
	key, err := keys.Load(config.TagKey)
	if err != nil || key[0] != 0xab {
		t.Fatal(err)
	}
	if shown := fmt.Sprintf("%v %s %#v", key, key, key); strings.Contains(shown, "ab") {
		t.Errorf("the key is shown: %s", shown)
	}
	if made, err := keys.Make(); err != nil || fmt.Sprint(made) != "[log rows hash]" {
		t.Errorf("made %v, %v", made, err)
	}
}

func TestAnUnreadableKeyIsRefusedWithoutQuotingIt(t *testing.T) {
	for _, text := range []string{"", "s3cret", strings.Repeat("ab", 31), strings.Repeat("zz", 32)} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "tag"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, keys := range []config.KeySource{
			keysIn(t, dir, nothing),
			keysIn(t, t.TempDir(), variables(map[string]string{"LAPSE_KEY_TAG": text})),
		} {
			_, err := keys.Load(config.TagKey)
			if err == nil || !strings.Contains(err.Error(), "want 64 hexadecimal digits") || text != "" && strings.Contains(err.Error(), text) {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
}

func TestAPasswordIsNotSentInTheClear(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := config.Broker{SASL: &config.SASL{Mechanism: config.Plain, Username: "me", PasswordFile: path}}
	if _, err := b.Login(); err == nil || !strings.Contains(err.Error(), "kafka.tls") {
		t.Errorf("got %v", err)
	}
	b.TLS = &config.TLS{}
	if _, err := b.Login(); err != nil {
		t.Error(err)
	}
}

func TestFormerKeysAreBesideTheOneThatFollowedThem(t *testing.T) {
	dir := t.TempDir()
	one, two, three := strings.Repeat("11", 32), strings.Repeat("22", 32), strings.Repeat("33", 32)
	former := func(text string) config.Environment {
		return func(name string) (string, bool) {
			if name != "LAPSE_KEY_HASH_FORMER" {
				return "", false
			}
			return text, true
		}
	}
	env := former(two + ", " + three)
	for name, text := range map[string]string{"hash": strings.Repeat("44", 32), "hash-2025": one, "hashes": "none", "tag-2025": "none"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		keys config.KeySource
		want int
	}{{keysIn(t, dir, nothing), 1}, {keysIn(t, dir, env), 3}, {keysIn(t, filepath.Join(dir, "none"), env), 2}} {
		found, err := c.keys.Former(config.HashKey)
		if err != nil || len(found) != c.want {
			t.Errorf("%d former keys, %v, want %d", len(found), err, c.want)
		}
		for _, key := range found {
			if len(key) != schemas.MinKey || key[0] != 0x11 && key[0] != 0x22 && key[0] != 0x33 {
				t.Errorf("a key of %d bytes that is none of the former", len(key))
			}
		}
	}
	path := filepath.Join(dir, "hash-2025")
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := keysIn(t, dir, nothing).Former(config.HashKey); err == nil || !strings.Contains(err.Error(), "chmod 600 "+path) {
		t.Errorf("a former key that others may read: %v", err)
	}
	if _, err := keysIn(t, t.TempDir(), former("secret")).Former(config.HashKey); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a former key that is none: %v", err)
	}
}

// The former key is there under a name of its own before another one is in its place, and a crash in between leaves both.
func TestTheLogsKeyIsRotatedInSteps(t *testing.T) {
	dir := t.TempDir()
	keys := keysIn(t, dir, nothing)
	if _, err := keys.Make(); err != nil {
		t.Fatal(err)
	}
	first, err := keys.Load(config.LogKey)
	if err != nil {
		t.Fatal(err)
	}
	next, former, err := keys.RotateLog()
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := keys.Load(config.LogKey)
	before, other := keys.Former(config.LogKey)
	if err != nil || other != nil || string(loaded) != string(next) || string(next) == string(first) || len(before) != 1 || string(before[0]) != string(first) {
		t.Fatalf("after it there are another key: %v, and %d former ones (%v, %v)", string(loaded) != string(first), len(before), err, other)
	}
	if info, err := os.Stat(former); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the former key: %v, %v", info, err)
	}
	// A crash before the last step: the key is there under both names, and the next one lies ready.
	if err := os.Link(filepath.Join(dir, "log"), filepath.Join(dir, fmt.Sprintf("log-%.16s", next.Fingerprint()))); err != nil {
		t.Fatal(err)
	}
	ready := strings.Repeat("cd", schemas.MinKey)
	if err := os.WriteFile(filepath.Join(dir, ".log.next"), []byte(ready), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, _, err := keys.RotateLog(); err != nil || again[0] != 0xcd {
		t.Errorf("it does not go on: %v", err)
	}
	if before, err := keys.Former(config.LogKey); err != nil || len(before) != 2 {
		t.Errorf("there are %d former keys (%v)", len(before), err)
	}
	variable := keysIn(t, dir, variables(map[string]string{"LAPSE_KEY_LOG": ready}))
	if _, _, err := variable.RotateLog(); err == nil || !strings.Contains(err.Error(), "LAPSE_KEY_LOG_FORMER") {
		t.Errorf("of a variable it says %v", err)
	}
}
