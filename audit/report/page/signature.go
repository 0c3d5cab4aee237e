package page

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/note"
)

// Signer signs a statement as a signed note.
type Signer interface {
	Name() string
	SignStatement(text string) ([]byte, error)
}

// Signed writes a document as a page with a signature over its canonical JSON and over the page itself: so a page can be checked without the
// log, even if another build made it. A nil signer leaves the page unsigned.
func (d *Document) Signed(canonical []byte, by Signer) ([]byte, error) {
	page, err := d.HTML(canonical, "")
	if err != nil || by == nil {
		return page, err
	}
	signed, err := by.SignStatement(statement(by.Name(), canonical, page))
	if err != nil {
		return nil, fmt.Errorf("sign the report: %w", err)
	}
	return d.HTML(canonical, string(signed))
}

// statement is the signed text. origin is the log's name.
func statement(origin string, canonical, unsigned []byte) string {
	hash := func(b []byte) string {
		sum := sha256.Sum256(b)
		return base64.StdEncoding.EncodeToString(sum[:])
	}
	return fmt.Sprintf("lapse report v1\n%s\njson sha256 %s\npage sha256 %s\n", origin, hash(canonical), hash(unsigned))
}

// ErrUnsigned says that a page has no signature.
var ErrUnsigned = errors.New("the page is not signed")

// CheckSignature checks that the log's key signed this canonical JSON and this page.
func (e *Embedded) CheckSignature(canonical []byte, log note.Verifier) error {
	if e.Signature == "" {
		return ErrUnsigned
	}
	opened, err := note.Open([]byte(e.Signature), note.VerifierList(log))
	if err != nil {
		return fmt.Errorf("its signature is not of the key %s: %w", log.Name(), err)
	}
	if opened.Text != statement(log.Name(), canonical, e.unsigned) {
		return errors.New("its signature is over another report or another page")
	}
	return nil
}
