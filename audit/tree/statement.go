package tree

import (
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// SignStatement signs other statements of the log's owner: a note under the log's key. The first line must contain a space, which no origin
// has, so that a statement cannot pass for a checkpoint.
func (k *Key) SignStatement(text string) ([]byte, error) {
	if first, _, _ := strings.Cut(text, "\n"); !strings.Contains(first, " ") {
		return nil, fmt.Errorf("the statement %q could be a checkpoint", first)
	}
	return note.Sign(&note.Note{Text: text}, k.signer)
}
