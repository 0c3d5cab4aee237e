package evidence

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestInstantsAreWrittenAsTheirLayoutSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(-99_999_999_999, 299_999_999_999).Draw(t, "seconds"), rapid.SampledFrom([]int64{0, 1, 999, 1000, 123456000, 999999999}).Draw(t, "nanoseconds"))
		layout := `"2006-01-02T15:04:05.000000Z"`
		if at.Nanosecond() == 0 {
			layout = `"2006-01-02T15:04:05Z"`
		}
		if got, want := string(appendInstant([]byte("x"), at)), "x"+at.UTC().Format(layout); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	})
}
