package tree

import (
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// SignStatement signs what the log's owner says beside its checkpoints: a signed note under the same key. Its first line must have a space,
// which no origin has, so that nobody can use it as a checkpoint.
func (k *Key) SignStatement(text string) ([]byte, error) {
	if first, _, _ := strings.Cut(text, "\n"); !strings.Contains(first, " ") {
		return nil, fmt.Errorf("the statement %q could be a checkpoint", first)
	}
	return note.Sign(&note.Note{Text: text}, k.signer)
}
