package schemas

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Function is a function of schema "lapse" as its text defines it, with everything that determines what a call does. Digest compares the
// text with the catalog.
type Function struct {
	Name       string // with its schema
	Owner      string // the role; not in the text
	Language   string
	Volatility string // immutable, stable or volatile
	Definer    bool   // SECURITY DEFINER
	Strict     bool
	Settings   []string // name=value in the catalog's spelling, names in lower case, sorted
	Body       string
}

// bodyQuote encloses the body of every function of ours, and bodyStart ends its head.
const (
	bodyQuote = "$lapse$"
	bodyStart = "\nas " + bodyQuote
)

// functionHead is how every function of ours begins: they have one layout, so that text and catalog can be compared. functionStart is
// how a function begins in any layout.
var (
	functionStart = regexp.MustCompile(`(?i)^create\s+(or\s+replace\s+)?(function|procedure)\s`)
	functionHead  = regexp.MustCompile(`(?s)create (?:or replace )?function (lapse\.[a-z_0-9]+)\([^;]*?\)\s+returns [^;]*?\nlanguage ([a-z]+)((?: [a-z]+)*)\n((?:set [^\n]*\n)*)as \$lapse\$`)
)

// functionWords are the attributes that ours may have, apart from the language.
var functionWords = []string{"immutable", "stable", "volatile", "strict", "security", "definer", "invoker"}

// ParseFunctions reads the functions in a script of ours; owner owns them. A function in another layout is an error, because its text
// could not be compared with the catalog.
func ParseFunctions(script, owner string) ([]Function, error) {
	var all []Function
	for rest := script; ; {
		at := functionIn(rest)
		if at < 0 {
			return all, nil
		}
		rest = rest[at:]
		end := len(rest)
		if body := strings.Index(rest, bodyStart); body >= 0 {
			end = body + len(bodyStart)
		}
		head := functionHead.FindStringSubmatchIndex(rest[:end]) // on all the rest it would be slow
		if head == nil || head[0] != 0 {
			return nil, fmt.Errorf("read a function's text: %.60q does not have the layout of Lapse's functions", rest)
		}
		body, after, found := strings.Cut(rest[head[1]:], bodyQuote)
		if !found {
			return nil, fmt.Errorf("read a function's text: %s has no end", rest[head[2]:head[3]])
		}
		words := strings.Fields(rest[head[6]:head[7]])
		for _, word := range words {
			if !slices.Contains(functionWords, word) {
				return nil, fmt.Errorf("read a function's text: %s is %q, which is not compared with the catalog", rest[head[2]:head[3]], word)
			}
		}
		f := Function{
			Name: rest[head[2]:head[3]], Owner: owner, Language: rest[head[4]:head[5]], Volatility: "volatile",
			Definer: slices.Contains(words, "definer"), Strict: slices.Contains(words, "strict"), Body: body,
		}
		for _, volatility := range []string{"immutable", "stable"} {
			if slices.Contains(words, volatility) {
				f.Volatility = volatility
			}
		}
		for line := range strings.Lines(rest[head[8]:head[9]]) {
			if !strings.Contains(line, " = ") {
				return nil, fmt.Errorf("read a function's text: %s has a setting that is not written name = value: %.60q", f.Name, line)
			}
			f.Settings = append(f.Settings, setting(line))
		}
		slices.Sort(f.Settings)
		all, rest = append(all, f), after
	}
}

// functionIn returns where the first function or procedure begins, or -1. To look only where the first word is takes a tenth of the time
// that the regular expression alone takes.
func functionIn(script string) int {
	const first = "create"
	for at := 0; at+len(first) <= len(script); at++ {
		if script[at]|0x20 == first[0] && strings.EqualFold(script[at:at+len(first)], first) && functionStart.MatchString(script[at:]) && (at == 0 || !wordByte(script[at-1])) {
			return at
		}
	}
	return -1
}

// wordByte reports whether a byte may be part of a name.
func wordByte(b byte) bool {
	return b == '_' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= 0x80
}

// setting converts "set a = 'b'" to the catalog's spelling.
func setting(line string) string {
	name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "set "), " = ")
	return name + "=" + strings.Trim(value, "'")
}

// batchFunctions are the functions of the catalog that a batch runs, besides the policy's own.
var batchFunctions = []string{
	"lapse.enforced_holds", "lapse.held_along", "lapse.held_keys", "lapse.held_on", "lapse.check_caller", "lapse.is_caller", "lapse.may_ask",
	"lapse.hold_fault", "lapse.holds_on", "lapse.changed_columns", "lapse.changed_part", "lapse.made", "lapse.meaning", "lapse.overwrites", "lapse.parts", "lapse.same_columns",
	"lapse.clear", "lapse.code", "lapse.distrusted", "lapse.enter", "lapse.examine", "lapse.familiar", "lapse.half_latitude", "lapse.held", "lapse.intruders", "lapse.joined", "lapse.keep", "lapse.lease_time", "lapse.leave", "lapse.check_leaf", "lapse.low_mark", "lapse.mark_time", "lapse.next_portion", "lapse.pin", "lapse.publications_fault", "lapse.publications_trouble",
	"lapse.reach", "lapse.record", "lapse.resist", "lapse.quarantined", "lapse.quarantined_keys", "lapse.same_table", "lapse.signature", "lapse.surroundings", "lapse.system_identifier", "lapse.timeline", "lapse.unseen", "lapse.worth_a_mark",
	"lapse.tally_of", "lapse.set_key", "lapse.sets", "lapse.strayed", "lapse.unpromised",
	"lapse.answers", "lapse.deleter_of", "lapse.kept_by", "lapse.lock_along", "lapse.lock_rows", "lapse.locker", "lapse.readable", "lapse.quarantine_kept", "lapse.to_lock", "lapse.ways",
	"lapse.awaited", "lapse.leave_drop", "lapse.leaves", "lapse.part", "lapse.part_of", "lapse.record_drop", "lapse.referring",
}

// lookFunctions are the functions of the catalog that a look runs, besides the policy's own, and those that check leaves for the next look.
var lookFunctions = []string{
	"lapse.enforced_holds", "lapse.held_along", "lapse.held_keys", "lapse.held_on", "lapse.check_caller", "lapse.is_caller", "lapse.may_ask", "lapse.leaves",
	"lapse.hold_fault", "lapse.holds_on", "lapse.changed_columns", "lapse.changed_part", "lapse.made", "lapse.meaning", "lapse.overwrites", "lapse.parts", "lapse.same_columns",
	"lapse.candidates", "lapse.familiar", "lapse.few_leaves", "lapse.filled", "lapse.half_latitude", "lapse.held", "lapse.inspect_leaf",
	"lapse.low_mark", "lapse.mark_time", "lapse.pin", "lapse.reach", "lapse.quarantined", "lapse.quarantined_keys", "lapse.same_table", "lapse.signature", "lapse.tree_of", "lapse.tree_signature", "lapse.worth_a_mark",
	"lapse.deleter_of", "lapse.sets", "lapse.ways",
	"lapse.acquaint", "lapse.code", "lapse.distrusted", "lapse.examine", "lapse.follow_holds", "lapse.intruders", "lapse.joined", "lapse.keep", "lapse.set_key", "lapse.surroundings",
	"lapse.system_identifier", "lapse.unpromised", "lapse.unseen",
}

// DeleterFunctions are the catalog's functions that a deleter may call, as GRANT names them. Its only other right in schema lapse is to read
// CallerView.
func DeleterFunctions() []string {
	return []string{
		"lapse.held_keys(int, bytea)", "lapse.held_rows(int, int, bytea)", "lapse.quarantined_keys(int, int, oid, timestamptz, bytea)",
		"lapse.enter(lapse.claim, lapse.work, int, int, int, bytea)", "lapse.check_leaf(lapse.claim, lapse.work, text)",
		"lapse.record(lapse.claim, bytea, lapse.work)", "lapse.resist(lapse.claim, lapse.work, text[], text, text, text, text, text, text)",
		"lapse.leave(lapse.claim, lapse.work, lapse.portions, lapse.tally, text[], boolean, oid[])", "lapse.clear(lapse.claim, lapse.work)", "lapse.inspect(int, int)",
		"lapse.pin()", "lapse.next_portion(lapse.portions, lapse.work, lapse.aim, bigint)", "lapse.cascade_statement(oid, text)", "lapse.part(lapse.claim, lapse.work, name)", "lapse.awaited(oid)",
		"lapse.record_drop(lapse.claim, bytea, lapse.work, bigint, timestamptz, timestamptz)", "lapse.leave_drop(lapse.claim, lapse.work, text)",
		"lapse.readable(oid)", "lapse.locker(oid, tid[])", "lapse.lock_along(oid, tid[], jsonb)",
		"lapse.lock_rows(lapse.claim, lapse.work, lapse.place, lapse.aim, anyelement, text, text, text, text)",
		"lapse.kept_by(oid[], tid[], tid[], oid[], tid[], tid[], oid[], tid[], oid[])", "lapse.quarantine_kept(lapse.claim, lapse.work, text[], oid[])",
		"lapse.candidates(int, int, name, timestamp, timestamp, bigint[])", "lapse.inspect_leaf(int, int, oid, text, bytea)",
	}
}

// CallerView proves to the catalog's functions which deleter is calling.
const CallerView = "lapse.caller"

// CallerProof is SQL for that proof.
const CallerProof = "(select caller.proof from " + CallerView + ")"

// CatalogFunctions returns all functions of the newest catalog, by name.
func CatalogFunctions(roles Roles) ([]Function, error) {
	steps, err := Migrations(roles)
	if err != nil {
		return nil, err
	}
	var all []Function
	for _, step := range steps {
		functions, err := ParseFunctions(step.SQL, roles.Owner)
		if err != nil {
			return nil, fmt.Errorf("version %d: %w", step.Version, err)
		}
		for _, f := range functions {
			all = slices.DeleteFunc(all, func(former Function) bool { return former.Name == f.Name })
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b Function) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// RunFunctions returns the functions of the newest catalog that every batch runs, and those that every look runs, by name.
func RunFunctions(roles Roles) (batches, looks []Function, err error) {
	all, err := CatalogFunctions(roles)
	if err == nil {
		batches, err = named(batchFunctions, all)
	}
	if err == nil {
		looks, err = named(lookFunctions, all)
	}
	return batches, looks, err
}

func named(names []string, all []Function) (found []Function, err error) {
	for _, f := range all {
		if slices.Contains(names, f.Name) {
			found = append(found, f)
		}
	}
	if len(found) != len(names) {
		return nil, fmt.Errorf("the migrations have %d of %d functions that are run", len(found), len(names))
	}
	return found, nil
}

// Digest is a digest of functions, in the given order. A claim uses it to say what ran.
type Digest [sha256.Size]byte

// Keyed returns the digest for a claim, under the tag key. Policies' texts contain values, and the log keeps claims forever: with an
// unkeyed digest, a reader of the log could try values until one fits. The same text has the same digest in every claim.
func (d Digest) Keyed(key Key) Digest {
	h := hmac.New(sha256.New, key)
	h.Write(append(appendText(nil, functionsFormat), d[:]...))
	return Digest(h.Sum(nil))
}

// functionsFormat precedes the digest under the key. No claim begins like that.
const functionsFormat = "lapse-functions-1"

// DigestOf returns the digest of functions.
func DigestOf(functions ...Function) Digest {
	var b []byte
	for i := range functions {
		f := &functions[i]
		for _, text := range []string{f.Name, f.Owner, f.Language, f.Volatility, fmt.Sprint(f.Definer, f.Strict), f.Body} {
			b = appendText(b, text)
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(f.Settings)))
		for _, s := range f.Settings {
			b = appendText(b, s)
		}
	}
	return sha256.Sum256(b)
}
