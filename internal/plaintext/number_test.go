package plaintext_test

import (
	"testing"

	"lapse/internal/plaintext"
)

func TestANumberIsReadInThrees(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000"} {
		if got := plaintext.Number(n); got != want {
			t.Errorf("%d is %s", n, got)
		}
	}
}
