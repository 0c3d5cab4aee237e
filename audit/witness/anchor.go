package witness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Anchor keeps checkpoints elsewhere than the log.
type Anchor interface {
	Name() string
	// Put is durable when it returns, as far as the anchor can tell.
	Put(ctx context.Context, client *http.Client, signed []byte) error
}

// FileAnchor appends checkpoints to a file, one in a line: {"note": …}, as in an export's checkpoints.jsonl.
//
//	crash within a line    the next one cuts it off
type FileAnchor struct{ Path string }

// Name is "file:" and the path.
func (a FileAnchor) Name() string { return "file:" + a.Path }

// Put appends, and syncs the file and, if it creates the file, its folder.
func (a FileAnchor) Put(_ context.Context, _ *http.Client, signed []byte) (err error) {
	line, err := json.Marshal(map[string]string{"note": string(signed)})
	if err != nil {
		return err
	}
	_, missing := os.Stat(a.Path)
	file, err := os.OpenFile(a.Path, os.O_RDWR|os.O_CREATE, 0o644) //nolint:gosec // checkpoints are for everybody to read
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	end, err := wholeLines(file)
	if err == nil {
		err = file.Truncate(end)
	}
	if err == nil {
		_, err = file.WriteAt(append(line, '\n'), end)
	}
	if err == nil {
		err = file.Sync()
	}
	if err == nil && missing != nil {
		err = syncFolder(filepath.Dir(a.Path))
	}
	return err
}

func syncFolder(name string) error {
	folder, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// longestLine is longer than any line of the file.
const longestLine = 64 << 10

// wholeLines returns where a file's last whole line ends. It cuts nothing off a file with other contents.
func wholeLines(file *os.File) (end int64, err error) {
	is, err := file.Stat()
	if err != nil {
		return 0, err
	}
	from := max(0, is.Size()-longestLine)
	tail := make([]byte, is.Size()-from)
	if _, err := file.ReadAt(tail, from); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	at := bytes.LastIndexByte(tail, '\n') + 1
	const begins = `{"note":"`
	if torn := string(tail[at:]); !strings.HasPrefix(torn, begins) && !strings.HasPrefix(begins, torn) || at == 0 && from > 0 {
		return 0, errors.New("the file is there, and is none of checkpoints: name another one")
	}
	return from + int64(at), nil
}

// PrintAnchor prints checkpoints, an empty line after each.
type PrintAnchor struct {
	To io.Writer
	mu sync.Mutex
}

// Name is "print".
func (*PrintAnchor) Name() string { return "print" }

// Put prints.
func (a *PrintAnchor) Put(_ context.Context, _ *http.Client, signed []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err := a.To.Write(append(bytes.Clone(signed), '\n'))
	return err
}

// WebAnchor posts checkpoints to an address, which answers 2xx when it has one.
type WebAnchor struct{ URL string }

// Name is the address without parts that may be secret.
func (a WebAnchor) Name() string {
	u, err := url.Parse(a.URL)
	if err != nil {
		return "an address"
	}
	return u.Scheme + "://" + u.Host + u.EscapedPath()
}

// Put posts.
func (a WebAnchor) Put(ctx context.Context, client *http.Client, signed []byte) error {
	status, answer, err := post(ctx, client, a.URL, signed)
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("it answers %d: %s", status, said(answer))
	}
	return err
}
