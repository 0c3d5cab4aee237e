package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"lapse/audit/rows"
)

// notShown lists what no receipt shows.
var notShown = []string{
	"that the row is gone from backups, replicas or copies: it was deleted from the table, and not erased from those",
	"that there was no such row before or after, or that the database was not set back to before it: later records of the log say so",
	"whether the record is true: anyone with the server and the log's key can write anything",
}

// receipt checks a receipt. It needs only the file, the row's key and the log's public key.
func (v *verifier) receipt(name, key string) error {
	if key == "" {
		return wrongUsage("--key is missing: a receipt shows the deletion of a row only to someone who knows the row's key")
	}
	if v.dir != "" || len(v.known) > 0 {
		return wrongUsage("a receipt is checked by itself: leave --dir and --known out")
	}
	filter, err := readKey(key)
	if err != nil {
		return err
	}
	text, err := readReceipt(name)
	if err != nil {
		return err
	}
	receipt, err := rows.ParseReceipt(text)
	if err != nil {
		return invalid(fmt.Errorf("%s: %w", name, err))
	}
	keys, err := v.keysOf(&receipt.Deletions[0])
	if err != nil {
		return err
	}
	result := &verified{NotChecked: notShown}
	for i := range receipt.Deletions {
		log := keys.of(&receipt.Deletions[i])
		result.PublicKey, result.Log = log.public, log.Name()
		shown, err := receipt.Deletions[i].Check(log, filter.of)
		if err != nil {
			result.Fault = &foundFault{File: name, What: err.Error()}
			break
		}
		result.Deletions = append(result.Deletions, *provenOf(shown))
		result.Records = max(result.Records, shown.Size)
	}
	result.Verifies = result.Fault == nil
	if v.asJSON {
		err = v.printJSON(result)
	} else {
		err = v.printReceipt(result)
	}
	if !result.Verifies {
		err = errors.Join(err, errNeedsPerson)
	}
	return err
}

// longestReceipt bounds the size of a receipt: records of the log are below 600 KiB.
const longestReceipt = 64 << 20

func readReceipt(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err == nil && info.Size() > longestReceipt {
		err = fmt.Errorf("%s is larger than any receipt", name)
	}
	if err != nil {
		return nil, invalid(err)
	}
	text, err := os.ReadFile(name)
	return text, invalid(err)
}

// publicKey is one of the log's public keys.
type publicKey struct {
	note.Verifier
	public string
}

// publicKeys are the present and former public keys of the log.
type publicKeys []publicKey

// of returns the key to check a receipt with: the one that signed its checkpoint, or else the first, which then does not verify.
func (all publicKeys) of(d *rows.Deletion) *publicKey {
	for i := range all {
		if d.SignedBy(all[i]) {
			return &all[i]
		}
	}
	return &all[0]
}

// keysOf returns the log's public keys: those that the user passed, or those derived from the key named log for the receipt's log.
func (v *verifier) keysOf(d *rows.Deletion) (all publicKeys, err error) {
	text := v.public
	if content, err := os.ReadFile(text); text != "" && err == nil {
		text = string(content)
	}
	for _, public := range strings.Fields(text) {
		key, err := note.NewVerifier(public)
		if err != nil {
			return nil, invalid(fmt.Errorf("the public key: %w: want NAME+HASH+KEY, as lapse keys list shows it, or a file with it", err))
		}
		all = append(all, publicKey{key, public})
	}
	if len(all) > 0 {
		return all, nil
	}
	if s, err := v.settings(); err == nil {
		if keys, err := logKeysOf(s); err == nil && keys != nil {
			key, err := keys(d.LogName())
			if err != nil {
				return nil, invalid(fmt.Errorf("the receipt names no log: %w", err))
			}
			for _, one := range key.All() {
				all = append(all, publicKey{one.Verifier(), one.Public()})
			}
			return all, nil
		}
	}
	return nil, wrongUsage("--public-key is missing: the log's, as its owner has published it")
}

// printReceipt prints the result as text.
func (v *verifier) printReceipt(r *verified) (err error) {
	line := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(v.out, format, args...)
		}
	}
	if r.Verifies {
		line("verifies with this key, under %s\n", r.PublicKey)
	} else {
		line("does not verify: %s: %s\n", r.Fault.File, r.Fault.What)
	}
	if r.Verifies && len(r.Deletions) > 1 {
		line("the row was deleted %d times\n", len(r.Deletions))
	}
	for i := range r.Deletions {
		if r.Verifies {
			line("shown: %s\n", r.Deletions[i].sentence())
		}
	}
	for _, what := range r.NotChecked {
		line("not shown: %s\n", what)
	}
	return err
}
