package evidence

import (
	"math/bits"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"lapse/replication"
	"lapse/schemas"
)

// The appenders below write JSON in one form only: no spaces, members in a fixed order, text escaped only where necessary (as in RFC 8785),
// numbers that a float64 cannot hold as text. Writing the same twice gives the same bytes.

const (
	lowerHex = "0123456789abcdef"
	upperHex = "0123456789ABCDEF"
)

// Bytes that are not UTF-8 become the characters U+EF80 to U+EFFF, one for each byte 0x80 to 0xFF.
const rawByte = 0xEF00

// TextForm is how a database's text becomes Unicode text for JSON.
type TextForm byte

const (
	// UTF8Text is text of a database in UTF8. It is written as it is.
	UTF8Text TextForm = iota
	// RawText is text of a database in another encoding, SQL_ASCII above all, where any byte may stand for anything.
	// What happens to be UTF-8 is written as it is. Every other byte b is written as the private-use character
	// U+EF00 + b, and so is each byte of a character U+EF80 to U+EFFF that was there before: the way back is to turn
	// U+EF80 to U+EFFF into bytes and the rest into UTF-8, and no two texts share a form. DecodeText does it.
	RawText
)

// TextFormOf is the form of text in a database with this encoding.
func TextFormOf(encoding string) TextForm {
	if encoding == "UTF8" {
		return UTF8Text
	}
	return RawText
}

// DecodeText returns the bytes that were written as s in the form RawText.
func DecodeText(s string) []byte {
	b := make([]byte, 0, len(s))
	for _, r := range s {
		if r >= rawByte+0x80 && r <= rawByte+0xFF {
			b = append(b, byte(r-rawByte))
		} else {
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}

// decode returns the text that was written as s in this form.
func (form TextForm) decode(s string) string {
	if form == UTF8Text {
		return s
	}
	return string(DecodeText(s))
}

// appendText writes s as a JSON string.
func appendText[T string | []byte](dst []byte, s T, form TextForm) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' {
				i++
				continue
			}
			dst = append(dst, s[start:i]...)
			dst = appendEscape(dst, c)
			i++
			start = i
			continue
		}
		r, size := decodeRune(s[i:])
		if !(r == utf8.RuneError && size == 1) && (form == UTF8Text || r < rawByte+0x80 || r > rawByte+0xFF) {
			i += size
			continue
		}
		dst = append(dst, s[start:i]...)
		for _, b := range []byte(s[i : i+size]) {
			dst = utf8.AppendRune(dst, rawByte+rune(b))
		}
		i += size
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// appendPlain writes s for a header: like appendText, but without quotes and escapes. It is UTF-8 for any database.
func appendPlain(dst []byte, s string, form TextForm) []byte {
	if form == UTF8Text {
		return append(dst, s...)
	}
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 || r >= rawByte+0x80 && r <= rawByte+0xFF {
			for _, b := range []byte(s[i : i+size]) {
				dst = utf8.AppendRune(dst, rawByte+rune(b))
			}
		} else {
			dst = append(dst, s[i:i+size]...)
		}
		i += size
	}
	return dst
}

func decodeRune[T string | []byte](s T) (rune, int) {
	if len(s) > utf8.UTFMax {
		s = s[:utf8.UTFMax]
	}
	return utf8.DecodeRuneInString(string(s))
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\t':
		return append(dst, '\\', 't')
	case '\n':
		return append(dst, '\\', 'n')
	case '\f':
		return append(dst, '\\', 'f')
	case '\r':
		return append(dst, '\\', 'r')
	default:
		return append(dst, '\\', 'u', '0', '0', lowerHex[c>>4], lowerHex[c&15])
	}
}

// appendInstant writes an instant in RFC 3339, UTC, with six digits of fraction, or none if it is a whole second.
func appendInstant(dst []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		layout := "2006-01-02T15:04:05.000000Z"
		if t.Nanosecond() == 0 {
			layout = "2006-01-02T15:04:05Z"
		}
		return append(t.AppendFormat(append(dst, '"'), layout), '"')
	}
	// By hand: every event and record has one, and reading a layout costs more than the rest.
	hour, minute, second := t.Clock()
	dst = appendDigits(append(dst, '"'), year, 4)
	dst = appendDigits(append(dst, '-'), int(month), 2)
	dst = appendDigits(append(dst, '-'), day, 2)
	dst = appendDigits(append(dst, 'T'), hour, 2)
	dst = appendDigits(append(dst, ':'), minute, 2)
	dst = appendDigits(append(dst, ':'), second, 2)
	if t.Nanosecond() != 0 {
		dst = appendDigits(append(dst, '.'), t.Nanosecond()/1000, 6)
	}
	return append(dst, 'Z', '"')
}

// appendDigits writes a number in so many digits.
func appendDigits(dst []byte, n, digits int) []byte {
	dst = append(dst, "000000"[:digits]...)
	for at := len(dst) - 1; n > 0; at, n = at-1, n/10 {
		dst[at] = byte('0' + n%10)
	}
	return dst
}

// appendHex writes n in upper case with leading zeros, so that the texts sort like the numbers.
func appendHex(dst []byte, n uint64, digits int) []byte {
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		dst = append(dst, upperHex[n>>shift&15])
	}
	return dst
}

// appendLSN writes a position as PostgreSQL does.
func appendLSN(dst []byte, lsn schemas.LSN) []byte {
	dst = append(dst, '"')
	dst = appendHexShort(dst, uint32(lsn>>32))
	dst = append(dst, '/')
	dst = appendHexShort(dst, uint32(lsn))
	return append(dst, '"')
}

func appendHexShort(dst []byte, n uint32) []byte {
	return appendHex(dst, uint64(n), max(1, (bits.Len32(n)+3)/4))
}

func appendUint(dst []byte, n uint64) []byte { return strconv.AppendUint(dst, n, 10) }

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

func appendBool(dst []byte, b bool) []byte { return strconv.AppendBool(dst, b) }

func appendUUID(dst []byte, id uuid.UUID) []byte {
	return append(appendUUIDText(append(dst, '"'), id), '"')
}

func appendUUIDText(dst []byte, id uuid.UUID) []byte {
	for i, b := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, lowerHex[b>>4], lowerHex[b&15])
	}
	return dst
}

// tableName is a relation's name for people and filters: schema.table, each part in double quotes unless it consists of lower-case letters,
// digits, _ and $. SQL's reserved words differ from version to version and are not quoted.
func tableName(r *replication.Relation) string {
	if plainName(r.Schema) && plainName(r.Name) {
		return r.Schema + "." + r.Name
	}
	return string(appendName(append(appendName(nil, r.Schema), '.'), r.Name))
}

func plainName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c == '_' || i > 0 && (c >= '0' && c <= '9' || c == '$')) {
			return false
		}
	}
	return name != ""
}

func appendName(dst []byte, name string) []byte {
	if plainName(name) {
		return append(dst, name...)
	}
	dst = append(dst, '"')
	for i := range len(name) {
		if name[i] == '"' {
			dst = append(dst, '"')
		}
		dst = append(dst, name[i])
	}
	return append(dst, '"')
}

// optionalLSN is zero if a record does not have it.
func optionalLSN(text string) (schemas.LSN, error) {
	if text == "" {
		return 0, nil
	}
	return schemas.ParseLSN(text)
}
