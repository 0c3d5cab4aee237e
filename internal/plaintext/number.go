package plaintext

import "strconv"

// Number is a count with its digits in threes.
func Number(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
