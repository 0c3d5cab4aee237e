package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lapse/audit/export"
	"lapse/audit/rows"
	"lapse/internal/config"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// A receipt is checked on a machine that has nothing but the binary, the receipt, the row's key and the log's public key.
func TestAReceiptShowsOneRowToWhoKnowsItsKey(t *testing.T) {
	t.Parallel()
	s := newShop(t, pgtest.New(t, pgtest.Newest(t)), kafkatest.Broker(t), 40, 10, 15)
	s.m.lapse("audit", "--once") // the policy is armed
	s.m.lapse("run", "--once")
	s.userDeletes(1, 3)
	s.db.Exec(t, `insert into public.sessions values (41, now(), 'again')`)
	s.userDeletes(1, 1)
	s.m.lapse("audit", "--once")

	public := s.m.publicKey()
	elsewhere := &machine{t: t, bin: s.m.bin, dir: t.TempDir(), env: []string{"HOME=" + t.TempDir()}}
	receipt := filepath.Join(elsewhere.dir, "receipt.json")
	export := filepath.Join(t.TempDir(), "evidence")
	s.m.lapse("events", "--export", export)

	for _, where := range [][]string{nil, {"--dir", export}} {
		prove := func(key string) []string {
			return append([]string{"prove", "--table", "public.sessions", "--key", key, "-o", receipt}, where...)
		}
		says(t, s.m.lapse(prove("7")...), "was deleted from public.sessions by policy sessions-30d at ", "personal data")
		text, err := os.ReadFile(receipt)
		if err != nil || strings.Contains(string(text), `"7"`) {
			t.Errorf("the key is in the receipt, %v: %s", err, text)
		}
		says(t, elsewhere.lapse("verify", "receipt.json", "--key", "7", "--public-key", public),
			"verifies with this key", "shown: the row was deleted from public.sessions by policy sessions-30d at ", "not shown: that the row is gone from backups")
		says(t, elsewhere.lapse("verify", "receipt.json", "--key", `{"id":"7"}`, "--public-key", public, "--json"), `"verifies": true`)
		for _, other := range []string{"8", "", "7,7", `{"no":"7"}`} {
			if other == "" {
				elsewhere.exits(exitInvalid, "verify", "receipt.json", "--public-key", public)
				continue
			}
			says(t, elsewhere.exits(exitPerson, "verify", "receipt.json", "--key", other, "--public-key", public), "does not verify", "not the deletion of the row with this key")
		}
		elsewhere.exits(exitInvalid, "verify", "receipt.json", "--key", "7")
		tampered(t, elsewhere, text, public)

		says(t, s.m.lapse(prove("41")...), "was deleted 2 times", "by someone other than a policy")
		says(t, elsewhere.lapse("verify", "receipt.json", "--key", "41", "--public-key", public), "was deleted 2 times")
		if err := os.Remove(receipt); err != nil {
			t.Fatal(err)
		}
		says(t, s.m.exits(exitPerson, prove("60")...), "no deletion of this row was found; searched: all events that were published")
		if _, err := os.Stat(receipt); err == nil {
			t.Error("there is a receipt of nothing")
		}
	}
}

// When a month's key is gone, everything verifies as before, and no row is linked any more.
func TestADestroyedMonthVerifiesAndShowsNoRow(t *testing.T) {
	t.Parallel()
	s := newShop(t, pgtest.New(t, pgtest.Newest(t)), kafkatest.Broker(t), 0, 10, 15)
	s.m.lapse("audit", "--once")
	s.userDeletes(1, 5)
	s.m.lapse("audit", "--once")
	s.m.lapse("prove", "--table", "public.sessions", "--key", "3", "-o", "given.json")
	present, before := schemas.EpochOf(time.Now()), schemas.EpochOf(schemas.EpochOf(time.Now()).Begin().AddDate(0, -1, 0))
	says(t, s.m.exits(exitInvalid, "keys", "destroy", "--epoch", string(present), "--yes"), "is not over")
	says(t, s.m.exits(exitInvalid, "keys", "destroy", "--epoch", "2019-01", "--yes"), "there is no key of this month")
	says(t, s.m.lapse("keys", "destroy", "--epoch", string(before), "--yes"), "is destroyed in", "receipts that were given")
	says(t, s.m.lapse("keys", "list"), "rows of "+string(before)+"  destroyed")

	// A month that has rows takes a month to be over.
	source := config.KeySource{Dir: filepath.Join(s.m.dir, "keys")}
	if err := source.DestroyMonth(present); err != nil {
		t.Fatal(err)
	}
	says(t, s.m.exits(exitPerson, "prove", "--table", "public.sessions", "--key", "3"), "was destroyed: no row of that month can be shown any more")
	s.m.lapse("verify", "given.json", "--key", "3")
	s.m.lapse("audit", "--once") // nothing was deleted since
	export := filepath.Join(t.TempDir(), "evidence")
	s.m.lapse("events", "--export", export)
	says(t, s.m.lapse("verify", "--dir", export, "--keys", source.Dir), "verifies: ", "and 0 events with their own")
	text, err := os.ReadFile(filepath.Join(export, s.name+".log-0.jsonl"))
	if err != nil || strings.Count(string(text), `\"destroyed\":true`) != 2 {
		t.Errorf("the log does not say that two months are destroyed: %v", err)
	}
	// An auditor with a copy of the former file neither commits under the key nor takes the word back; one without publishes, and commits to nothing.
	s.userDeletes(6, 6)
	s.m.lapse("audit", "--once")
	says(t, s.m.exits(exitPerson, "prove", "--table", "public.sessions", "--key", "6"), "the key of its month had been destroyed")
	says(t, s.m.lapse("verify"), "they name a month whose key was destroyed")
}

// A manifest can be written again with a changed export; only the log is signed.
func TestAnEventThatIsChangedWithTheManifestIsFound(t *testing.T) {
	t.Parallel()
	s := newShop(t, pgtest.New(t, pgtest.Newest(t)), kafkatest.Broker(t), 30, 10, 8)
	s.m.lapse("audit", "--once")
	s.m.lapse("run", "--once")
	s.userDeletes(1, 6)
	s.m.lapse("audit", "--once")
	keys := filepath.Join(s.m.dir, "keys")
	dir := filepath.Join(t.TempDir(), "evidence")
	s.m.lapse("events", "--export", dir)
	says(t, s.m.lapse("verify", "--dir", dir), "each with the events that its record says", "needs the key named rows")
	says(t, s.m.lapse("verify", "--dir", dir, "--keys", keys), "and 36 events with their own")
	manifest := manifestOf(t, dir)
	for i := 1; i < len(manifest.Files); i++ {
		of := manifest.Files[i]
		former, err := os.ReadFile(filepath.Join(dir, of.Name))
		if err != nil {
			t.Fatal(err)
		}
		at := -1
		lines := bytes.SplitAfter(bytes.TrimSuffix(former, []byte("\n")), []byte("\n"))
		for k := range lines {
			if !bytes.Contains(lines[k], []byte(`"value":"fence"`)) {
				at = k
			}
		}
		if at < 0 {
			continue
		}
		for what, change := range map[string]func(all []export.Line) []export.Line{
			"removed": func(all []export.Line) []export.Line { return slices.Delete(all, at, at+1) },
			"another row": func(all []export.Line) []export.Line {
				all[at].Value = bytes.ReplaceAll(all[at].Value, all[at].Key, []byte(`{"id":"999"}`))
				all[at].Key = []byte(`{"id":"999"}`)
				return all
			},
		} {
			if of.Topic == manifest.Topics.Proofs && what != "removed" {
				continue
			}
			all := make([]export.Line, len(lines))
			for k := range lines {
				if err := json.Unmarshal(lines[k], &all[k]); err != nil {
					t.Fatal(err)
				}
			}
			rewrite(t, dir, *manifest, i, change(all))
			said := s.m.exits(exitPerson, "verify", "--dir", dir, "--keys", keys)
			says(t, said, "does not verify: ")
			if strings.Contains(said, export.ManifestFile) || strings.Contains(said, "SHA-256") {
				t.Errorf("%s, %s: it is found by the manifest alone: %s", of.Name, what, said)
			}
			rewrite(t, dir, *manifest, i, nil)
			if err := os.WriteFile(filepath.Join(dir, of.Name), former, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.m.lapse("verify", "--dir", dir, "--keys", keys)
}

// rewrite writes a file of an export and the manifest; without records the manifest alone, as it was.
func rewrite(t *testing.T, dir string, manifest export.Manifest, file int, all []export.Line) {
	t.Helper()
	manifest.Files = slices.Clone(manifest.Files)
	if all != nil {
		var text bytes.Buffer
		of := &manifest.Files[file]
		for i := range all {
			all[i].Offset = of.First + int64(i)
			line, err := all[i].Text()
			if err != nil {
				t.Fatal(err)
			}
			text.Write(line)
		}
		sum := sha256.Sum256(text.Bytes())
		of.Records, of.End, of.SHA256 = len(all), of.First+int64(len(all)), hex.EncodeToString(sum[:])
		if err := os.WriteFile(filepath.Join(dir, of.Name), text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := manifest.Write(dir); err != nil {
		t.Fatal(err)
	}
}

// tampered changes each part of a receipt in turn: none of it verifies.
func tampered(t *testing.T, m *machine, text []byte, public string) {
	t.Helper()
	other := func(s string) string { return strings.Replace(s, "7", "8", 1) }
	for what, change := range map[string]func(*rows.Deletion){
		"the record":   func(d *rows.Deletion) { d.Record = strings.Replace(d.Record, "sessions-30d", "sessions-31d", 1) },
		"the proof":    func(d *rows.Deletion) { d.Proof = strings.Replace(d.Proof, "index ", "index 1", 1) },
		"a signature":  func(d *rows.Deletion) { d.Proof = d.Proof[:len(d.Proof)-9] + "AAAAAA==\n" },
		"the ordinal":  func(d *rows.Deletion) { d.Ordinal++ },
		"the table":    func(d *rows.Deletion) { d.Table = "public.others" },
		"the op":       func(d *rows.Deletion) { d.Op = "soft_delete" },
		"the cause":    func(d *rows.Deletion) { d.Cause = "user" },
		"the columns":  func(d *rows.Deletion) { d.Columns = []string{"no"} },
		"what is hid":  func(d *rows.Deletion) { d.Published = other(`{"id":"7"}`) },
		"the salt":     func(d *rows.Deletion) { d.Salt[0] ^= 1 },
		"a short salt": func(d *rows.Deletion) { d.Salt = d.Salt[1:] },
		"the index":    func(d *rows.Deletion) { d.Index++ },
		"the path":     func(d *rows.Deletion) { d.Path[0][0] ^= 1 },
		"no path":      func(d *rows.Deletion) { d.Path = nil },
	} {
		receipt, err := rows.ParseReceipt(text)
		if err != nil {
			t.Fatal(err)
		}
		change(&receipt.Deletions[0])
		changed, err := json.Marshal(receipt)
		if err != nil {
			t.Fatal(err)
		}
		name := m.write("changed.json", string(changed))
		v := &verifier{app: &app{out: &strings.Builder{}}, public: public}
		if err := v.receipt(name, "7"); exitCode(err) != exitPerson {
			t.Errorf("%s changed: %v", what, err)
		}
	}
}
