package config

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"filippo.io/torchwood"

	"lapse/internal/yamldoc"
)

// Witnesses cosign the log's checkpoints.
type Witnesses struct {
	Quorum int // how many of them must cosign a checkpoint for it to count
	All    []Witness
}

// Witness is a witness's address and its key: NAME+HASH+KEY.
type Witness struct{ URL, Key string }

// Anchor keeps checkpoints: a file, an address, or, if both are empty, standard output.
type Anchor struct{ File, URL string }

// witnesses reads the list of witnesses and the quorum, or the list alone, which may be empty.
func (f *file) witnesses(node yamldoc.Node) {
	w := &f.s.Witnesses
	if node.Kind() == yamldoc.List {
		f.ask(node)
		w.Quorum = len(w.All)
		return
	}
	f.mapping(node, "witnesses",
		field{"quorum", f.count(&w.Quorum, 1)},
		field{"ask", f.ask})
	switch {
	case len(w.All) == 0:
		f.complain(node, "witnesses needs a list of those who are asked: ask: [{url: https://witness.example.com, key: NAME+HASH+KEY}]")
	case w.Quorum > len(w.All):
		f.complain(node, "the quorum is %d, and there are %d witnesses", w.Quorum, len(w.All))
	case w.Quorum == 0:
		w.Quorum = len(w.All)
	}
}

func (f *file) ask(node yamldoc.Node) {
	entries, ok := node.List()
	if !ok {
		f.complain(node, "ask: want a list of entries with url and key, not %s", kindOf(node))
		return
	}
	for _, entry := range entries {
		var one Witness
		f.mapping(entry, "a witness",
			field{"url", f.checked(&one.URL, checkWeb)},
			field{"key", f.checked(&one.Key, checkWitness)})
		if entry.Kind() == yamldoc.Mapping && (one.URL == "" || one.Key == "") {
			f.complain(entry, "a witness needs url and key: {url: https://witness.example.com, key: NAME+HASH+KEY}")
		}
		if slices.ContainsFunc(f.s.Witnesses.All, func(other Witness) bool { return other.Key == one.Key }) {
			f.complain(entry, "this witness is in the list already")
		}
		f.s.Witnesses.All = append(f.s.Witnesses.All, one)
	}
}

func checkWitness(key string) error {
	if _, err := torchwood.NewCosignatureVerifier(key); err != nil {
		return fmt.Errorf("%q is no witness's key (%w): want NAME+HASH+KEY of an Ed25519 cosigner, as the witness publishes it", key, err)
	}
	return nil
}

// checkWeb requires an address that only its owner can answer for: https, or http on this machine.
func checkWeb(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
		return fmt.Errorf("want an address that begins with https://, or with http:// on this machine (127.0.0.1)")
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// anchors reads the list of places to which checkpoints go.
func (f *file) anchors(node yamldoc.Node) {
	var all []string
	f.list(&all)(node)
	for _, text := range all {
		path, isFile := strings.CutPrefix(text, "file:")
		switch {
		case text == "print":
			f.s.Anchors = append(f.s.Anchors, Anchor{})
		case isFile && path != "":
			if !filepath.IsAbs(path) {
				path = filepath.Join(f.dir, path)
			}
			f.s.Anchors = append(f.s.Anchors, Anchor{File: path})
		case checkWeb(text) == nil:
			f.s.Anchors = append(f.s.Anchors, Anchor{URL: text})
		default:
			f.complain(node, "%q is no anchor: want file:PATH, print, or an address that begins with https://", text)
		}
	}
}
