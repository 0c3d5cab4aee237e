package schemas_test

import (
	"testing"

	"lapse/schemas"
)

func TestNamesAndTextsAreQuotedForSQL(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		schemas.Identifier("plain"):            `"plain"`,
		schemas.Identifier(`a"b`):              `"a""b"`,
		schemas.Identifier("my schema", "Tab"): `"my schema"."Tab"`,
		schemas.Literal("plain"):               `'plain'`,
		schemas.Literal("it's"):                `'it''s'`,
		schemas.Literal(`a\'b`):                ` E'a\\''b'`,
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
