package witness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"lapse/audit/tree"
)

// Witness is the address of a witness, and its key.
type Witness struct {
	URL string // add-checkpoint is below it
	Key *tree.Witness
}

const (
	requestTimeout = 10 * time.Second
	// longestAnswer is more than the cosignatures of all keys of a witness.
	longestAnswer = 16 << 10
	longestSaid   = 200 // of an error's text, that is repeated
)

// SeenError says that a witness has seen another size than the one at which the proof begins.
type SeenError struct{ Size int64 }

func (e *SeenError) Error() string { return fmt.Sprintf("it has seen %d records of this log", e.Size) }

// NewClient returns a client that follows no redirects: a witness must be at its configured address. Close its idle connections.
func NewClient() *http.Client {
	return &http.Client{
		Transport:     http.DefaultTransport.(*http.Transport).Clone(),
		Timeout:       requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// post sends a body and returns status and answer. It bounds the length of the answer.
func post(ctx context.Context, client *http.Client, address string, body []byte) (status int, answer []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "text/plain; charset=utf-8")
	request.Header.Set("User-Agent", "lapse")
	response, err := client.Do(request)
	var named *url.Error
	if errors.As(err, &named) {
		err = named.Err // without the address, which may have a secret
	}
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	answer, err = io.ReadAll(io.LimitReader(response.Body, longestAnswer+1))
	if err == nil && len(answer) > longestAnswer {
		err = fmt.Errorf("it answers %d with more than %d bytes", response.StatusCode, longestAnswer)
	}
	return response.StatusCode, answer, err
}

// Ask asks the witness to cosign a checkpoint that grew from what it has seen, and returns its cosignature, verified. If the witness has
// seen another size, the error is a *SeenError.
func (w *Witness) Ask(ctx context.Context, client *http.Client, signed []byte, seen int64, proof tlog.TreeProof) (*tree.Cosignature, error) {
	body := fmt.Appendf(nil, "old %d\n", seen)
	for _, h := range proof {
		body = append(append(body, h.String()...), '\n')
	}
	body = append(append(body, '\n'), signed...)
	status, answer, err := post(ctx, client, strings.TrimSuffix(w.URL, "/")+"/add-checkpoint", body)
	if err != nil {
		return nil, err
	}
	switch status {
	case http.StatusOK:
		return w.cosignature(signed, answer)
	case http.StatusConflict:
		size, err := strconv.ParseInt(strings.TrimSuffix(string(answer), "\n"), 10, 64)
		if err != nil || size < 0 {
			return nil, fmt.Errorf("it answers 409 with %s where the size that it has seen should be", said(answer))
		}
		return nil, &SeenError{size}
	case http.StatusNotFound:
		return nil, fmt.Errorf("it does not know this log (404: %s): tell the one who runs it the log's name and public key, or see whether the address is right", said(answer))
	case http.StatusForbidden:
		return nil, fmt.Errorf("it knows this log by another key, or does not take it from here (403: %s)", said(answer))
	case http.StatusUnprocessableEntity:
		return nil, fmt.Errorf("this log did not grow from the %d records that it has seen, it says (422: %s): it has seen another log of this name, or "+
			"the key has signed two", seen, said(answer))
	default:
		return nil, fmt.Errorf("it answers %d: %s", status, said(answer))
	}
}

// cosignature finds the witness's own cosignature among the lines of its answer.
func (w *Witness) cosignature(signed, lines []byte) (*tree.Cosignature, error) {
	text, ok := tree.TextOf(signed)
	if !ok {
		return nil, errors.New("what is to be cosigned is no signed note")
	}
	found, err := tree.Cosignatures(append([]byte(text+"\n"), lines...), []*tree.Witness{w.Key})
	if err != nil {
		return nil, fmt.Errorf("its answer: %w", err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("its answer has no cosignature by the key %s: %s", w.Key.Name(), said(lines))
	}
	return &found[0], nil
}

// said formats a foreign answer on one line.
func said(answer []byte) string {
	return fmt.Sprintf("%.*q", longestSaid, strings.TrimSpace(string(answer[:min(len(answer), longestSaid)])))
}
