package evidence

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Declared says for how long copies that Lapse cannot see are kept, as declared by those who run the database. Nothing measures it. An auditor's
// first heartbeat copies it from lapse.yaml, so that the log has it from then on.
type Declared struct {
	Stated     bool   `json:"-"`                     // the heartbeat has a declaration, even an empty one
	WALArchive string `json:"wal_archive,omitempty"` // "" if not declared
	Backups    string `json:"backups,omitempty"`
}

// MaxDeclared is the largest number of characters of each text.
const MaxDeclared = 200

// Text is the column's content: JSON in ASCII, which is the same in any database encoding.
func (d *Declared) Text() string {
	plain, _ := json.Marshal(d) // two texts: no error is possible
	var ascii strings.Builder
	for _, r := range string(plain) {
		switch {
		case r < utf8.RuneSelf:
			ascii.WriteRune(r)
		case r > 0xFFFF:
			r -= 0x10000
			fmt.Fprintf(&ascii, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			fmt.Fprintf(&ascii, `\u%04x`, r)
		}
	}
	return ascii.String()
}

// parseDeclared parses the column. Anyone with the auditor's login can write anything there: what cannot be parsed declares nothing.
func parseDeclared(text string) Declared {
	d := Declared{}
	if json.Unmarshal([]byte(text), &d) != nil {
		return Declared{}
	}
	return Declared{true, shortened(d.WALArchive), shortened(d.Backups)}
}

func shortened(text string) string {
	if utf8.RuneCountInString(text) > MaxDeclared {
		return string([]rune(text)[:MaxDeclared])
	}
	return text
}

func (d *Declared) append(b []byte, form TextForm) []byte {
	if !d.Stated {
		return b
	}
	b = append(b, `,"declared":{`...)
	if d.WALArchive != "" {
		b = appendText(append(b, `"wal_archive":`...), d.WALArchive, form)
	}
	if d.Backups != "" {
		if d.WALArchive != "" {
			b = append(b, ',')
		}
		b = appendText(append(b, `"backups":`...), d.Backups, form)
	}
	return append(b, '}')
}
