package schemas

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// LSN is a byte position in PostgreSQL's write-ahead log.
type LSN uint64

// Timeline numbers the timelines of a cluster: a promotion starts another.
type Timeline uint32

// History numbers the pasts of one database: a person who accepts a restored database starts another. Two copies of a database can give the
// same position, on the same timeline, to two transactions; the history tells them apart.
type History uint32

// String writes the position as PostgreSQL does, "0/19C2A40".
func (l LSN) String() string {
	return fmt.Sprintf("%X/%X", uint32(l>>32), uint32(l))
}

// ParseLSN reads the format of String and of PostgreSQL's pg_lsn.
func ParseLSN(text string) (LSN, error) {
	high, low, ok := strings.Cut(text, "/")
	if !ok {
		return 0, fmt.Errorf("read position %q: want two hexadecimal numbers around a slash, such as 0/19C2A40", text)
	}
	h, err := parseHex32(high)
	if err != nil {
		return 0, fmt.Errorf("read position %q: %w", text, err)
	}
	l, err := parseHex32(low)
	if err != nil {
		return 0, fmt.Errorf("read position %q: %w", text, err)
	}
	return LSN(uint64(h)<<32 | uint64(l)), nil
}

func parseHex32(text string) (uint32, error) {
	if text == "" || strings.ContainsAny(text, "+-_") {
		return 0, errors.New("want hexadecimal digits")
	}
	n, err := strconv.ParseUint(text, 16, 32)
	if err != nil {
		return 0, fmt.Errorf("want at most eight hexadecimal digits: %w", err)
	}
	return uint32(n), nil
}

// Scan reads a pg_lsn column. NULL becomes zero, which is not a position in any log.
func (l *LSN) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*l = 0
		return nil
	case string:
		parsed, err := ParseLSN(v)
		if err != nil {
			return err
		}
		*l = parsed
		return nil
	default:
		return fmt.Errorf("read position: want text, not %T", src)
	}
}
