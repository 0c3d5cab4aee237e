package policyfile

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"lapse/planner/expiry"
)

// Write returns a policy file with these policies. Parse reads the same policies from it; defaults are left out.
func Write(policies []Policy) []byte {
	if len(policies) == 0 {
		return []byte("policies: []\n")
	}
	text := "policies:\n"
	for i := range policies {
		text += policies[i].Entry()
	}
	return []byte(text)
}

// Entry is the policy as an entry in the list of a policy file.
func (p *Policy) Entry() string {
	text, before := "", "  - "
	for _, k := range keys() {
		if value := k.write(p); value != "" {
			text, before = text+before+k.name+": "+value+"\n", "    "
		}
	}
	return text
}

// plain matches a number with its unit, and a name with a dash: every YAML reader takes these for texts.
var plain = regexp.MustCompile(`^[0-9]+ [a-z]+$|^[a-z0-9][a-z0-9_.-]*-[a-z_]+$|^[a-z][a-z0-9_.]*-[a-z0-9_.-]*$`)

// quote is a text as YAML has it.
func quote(text string) string {
	switch {
	case text == "" || plain.MatchString(text):
		return text
	case strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }): // line breaks, which other quotes would fold
		return strconv.Quote(text)
	}
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}

func quoted(value func(*Policy) string) func(*Policy) string {
	return func(p *Policy) string { return quote(value(p)) }
}

// bare is one of some words, without quotes.
func bare(word string, words []string) string {
	if slices.Contains(words, word) {
		return word
	}
	return quote(word)
}

// list is a list of texts.
func list(texts []string) string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = quote(text)
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// writeExpire writes the keys that locate the rows' time first, and then the others in their order.
func (p *Policy) writeExpire() string {
	names := slices.DeleteFunc(expiry.Keys(), func(name string) bool { return name == "sidecar" })
	names = append([]string{"sidecar"}, names...)
	return p.writeKeys(names, "")
}

func (p *Policy) writeKeys(names []string, prefix string) string {
	var all, done []string
	for _, name := range names {
		key, below := strings.CutPrefix(name, prefix)
		if _, said := p.Expire[name]; !said || !below {
			continue
		}
		value := quote(p.Expire[name])
		switch outer, _, nested := strings.Cut(key, "."); {
		case nested && slices.Contains(done, outer):
			continue
		case nested:
			key, value, done = outer, p.writeKeys(names, prefix+outer+"."), append(done, outer)
		case isFlag(name):
			value = bare(p.Expire[name], []string{"true"})
		}
		all = append(all, key+": "+value)
	}
	return "{ " + strings.Join(all, ", ") + " }"
}

func (p *Policy) writeAction() string {
	if p.Action.Kind == ActionSoft {
		return fmt.Sprintf("{ soft: { column: %s } }", quote(p.Action.Column))
	}
	return bare(p.Action.Kind, actions)
}

func (p *Policy) writeEvents() string {
	switch {
	case len(p.Events.Columns) > 0:
		return fmt.Sprintf("{ columns: %s }", list(p.Events.Columns))
	case p.Events.Values == "":
		return ""
	}
	return fmt.Sprintf("{ values: %s }", bare(p.Events.Values, eventValues))
}

func (p *Policy) writeTriggers() string {
	switch {
	case !p.Triggers.Trusted:
		return ""
	case p.Triggers.SearchPath == "":
		return "trusted"
	}
	return fmt.Sprintf("{ trusted: true, search_path: %s }", quote(p.Triggers.SearchPath))
}

func (p *Policy) writeShards() string {
	switch {
	case p.Shards == nil:
		return ""
	case len(p.Shards.By) == 0:
		return fmt.Sprintf("{ count: %d }", p.Shards.Count)
	}
	return fmt.Sprintf("{ by: %s, count: %d }", list(p.Shards.By), p.Shards.Count)
}

func (p *Policy) shardsText() string {
	if p.Shards == nil {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", p.Shards.Count, strings.Join(p.Shards.By, ", ")))
}

// fraction writes max_fraction.
func fraction(format byte) func(*Policy) string {
	return func(p *Policy) string {
		if p.MaxFraction == 0 {
			return ""
		}
		return strconv.FormatFloat(p.MaxFraction, format, -1, 64)
	}
}
