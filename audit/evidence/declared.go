package evidence

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Declared is what the people who run the database say of copies that Lapse cannot see: for how long they are kept. Nobody measures it. An
// auditor's first heartbeat has it, as its lapse.yaml says, so that the log has it from then on.
type Declared struct {
	Stated     bool   `json:"-"`                     // the heartbeat says something of it, if only that nothing is declared
	WALArchive string `json:"wal_archive,omitempty"` // "" for nothing
	Backups    string `json:"backups,omitempty"`
}

// MaxDeclared is how many characters each text has at most.
const MaxDeclared = 200

// Text is what the column has: JSON in ASCII, which is the same in a database of any encoding.
func (d *Declared) Text() string {
	plain, _ := json.Marshal(d) // two texts
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

// parseDeclared reads the column. Who has the auditor's login can write anything there: what cannot be read declares nothing.
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
