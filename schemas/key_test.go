package schemas_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"lapse/schemas"
)

func TestAKeyIsNeverShown(t *testing.T) {
	t.Parallel()
	secret := bytes.Repeat([]byte("s3cret!?"), 4)
	key := schemas.Key(secret)
	in := struct{ Key schemas.Key }{key}
	var shown []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x", "%q"} {
		shown = append(shown, fmt.Sprintf(verb, key), fmt.Sprintf(verb, in), fmt.Sprintf(verb, &in))
	}
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	timeless := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr { // any digits may be in it
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}
	slog.New(slog.NewTextHandler(&logged, timeless)).Info("a message", "key", key, "in", in)
	slog.New(slog.NewJSONHandler(&logged, timeless)).Info("a message", "key", key, "in", in)
	for _, s := range append(shown, string(text), logged.String()) {
		if !strings.Contains(s, "(a key)") || strings.Contains(s, "s3cret") || strings.Contains(s, "115") || strings.Contains(s, "733363") {
			t.Errorf("shown: %s", s)
		}
	}
}

func TestAKeyThatIsTooShortIsRefused(t *testing.T) {
	t.Parallel()
	if err := schemas.Key(make([]byte, schemas.MinKey-1)).Check(); !errors.Is(err, schemas.ErrKeyTooShort) {
		t.Errorf("31 bytes: %v", err)
	}
	if err := schemas.Key(make([]byte, schemas.MinKey)).Check(); err != nil {
		t.Errorf("32 bytes: %v", err)
	}
}
