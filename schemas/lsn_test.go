package schemas_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lapse/schemas"
)

func TestEveryPositionThatIsWrittenCanBeRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := schemas.LSN(rapid.Uint64().Draw(t, "lsn"))
		back, err := schemas.ParseLSN(at.String())
		if err != nil || back != at {
			t.Fatalf("%s became %s, %v", at, back, err)
		}
		var scanned schemas.LSN
		if err := scanned.Scan(strings.ToLower(at.String())); err != nil || scanned != at {
			t.Fatalf("%s was scanned as %s, %v", at, scanned, err)
		}
	})
}

func TestTextThatIsNoPositionIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "/", "0", "0/", "/0", "0/0/0", "0x1/0", "+1/0", "0/-1", "0/1_0", "123456789/0", "0/123456789", " 0/0", "G/0",
	} {
		if at, err := schemas.ParseLSN(text); err == nil {
			t.Errorf("%q was read as %s", text, at)
		}
	}
}
