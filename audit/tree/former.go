package tree

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// former compares checkpoints of smaller trees, in the order of their sizes, with the tree at that size.
type former struct {
	file string                              // the file that faults name
	next func() (*Checkpoint, string, error) // io.EOF after the last; the text is its place
	stop func() error

	ahead *Checkpoint
	place string
	fit   int   // the number of compared checkpoints
	size  int64 // the last one's size

	from    int64 // skip the folder's checkpoints with at most so many leaves
	largest int64 // the size of the reader's largest checkpoint
}

// longestLine bounds a line of FormerFile: a note with more cosignatures than any log has.
const longestLine = 1 << 20

// open reads the folder's former checkpoints.
func (c *former) open(f *Folder, by *seen) error {
	file, err := f.Files.Open(FormerFile)
	if err != nil {
		return fault(FormerFile, -1, "it is missing")
	}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, longestLine)
	number := 0
	c.file = FormerFile
	c.stop = file.Close
	c.next = func() (*Checkpoint, string, error) {
		for passed := true; passed; {
			if !lines.Scan() {
				return nil, "", errors.Join(lines.Err(), io.EOF)
			}
			number++
			passed = c.passes(lines.Bytes(), by)
		}
		place := fmt.Sprintf("line %d", number)
		checkpoint, err := openLine(lines.Bytes(), f.Verifier, by)
		return checkpoint, place, err
	}
	return c.advance()
}

// passes reports whether to skip a line because a former verification compared it. With witnesses it skips none: their cosignatures count.
func (c *former) passes(line []byte, by *seen) bool {
	if c.from == 0 {
		return false
	}
	of, err := peekLine(line)
	return err == nil && of.Size <= c.from && len(by.witnesses) == 0
}

// openLine verifies a line of FormerFile.
func openLine(line []byte, verifier note.Verifier, by *seen) (*Checkpoint, error) {
	var j formerJSON
	if err := json.Unmarshal(line, &j); err != nil {
		return nil, err
	}
	if again, _ := json.Marshal(j); !bytes.Equal(again, line) {
		return nil, errors.New("the line is not as lapse writes it")
	}
	return by.open([]byte(j.Note), verifier)
}

// peekLine reads a line of FormerFile without verifying it.
func peekLine(line []byte) (*Checkpoint, error) {
	var j formerJSON
	if err := json.Unmarshal(line, &j); err != nil {
		return nil, err
	}
	return Peek([]byte(j.Note))
}

// openAny verifies a signed note with a key or, if the log's keys are available, with any of them; by is the key.
func openAny(signed []byte, verifier note.Verifier, key *Key) (c *Checkpoint, by note.Verifier, err error) {
	if c, err = Open(signed, verifier); err == nil {
		return c, verifier, nil
	}
	if by := key.By(signed); by != nil {
		c, err = Open(signed, by.verifier)
		return c, by.verifier, err
	}
	return nil, nil, err
}

// list reads the reader's checkpoints.
func (c *former) list(f *Folder, newest *Checkpoint, key *Key) error {
	var all []*Checkpoint
	for _, signed := range f.Known {
		checkpoint, _, err := openAny(signed, f.Verifier, key)
		if err != nil {
			return fmt.Errorf("a checkpoint that you have: %w", err)
		}
		if checkpoint.Size > newest.Size {
			return fault(CheckpointFile, newest.Size, "it is older than a checkpoint that you have, which is of %d records", checkpoint.Size)
		}
		all, c.largest = append(all, checkpoint), max(c.largest, checkpoint.Size)
	}
	slices.SortFunc(all, func(a, b *Checkpoint) int { return int(min(max(a.Size-b.Size, -1), 1)) })
	c.file = CheckpointFile
	c.next = func() (*Checkpoint, string, error) {
		if len(all) == 0 {
			return nil, "", io.EOF
		}
		first := all[0]
		all = all[1:]
		return first, "a checkpoint that you have", nil
	}
	return c.advance()
}

func (c *former) advance() error {
	before := c.ahead
	next, place, err := c.next()
	switch {
	case errors.Is(err, io.EOF):
		c.ahead = nil
		return nil
	case err != nil:
		return fault(c.file, -1, "%s: it does not verify: %v", place, err)
	case before != nil && next.Size < before.Size:
		return fault(c.file, next.Size, "%s: it is of a smaller tree than the one before it", place)
	}
	c.ahead, c.place = next, place
	return nil
}

// reached compares the checkpoints of this size.
func (c *former) reached(e *edge) error {
	for c.ahead != nil && c.ahead.Size == e.size {
		if err := c.compare(e.root()); err != nil {
			return err
		}
	}
	return nil
}

// compare compares the next checkpoint with the root of the tree of its size.
func (c *former) compare(root tlog.Hash) error {
	if c.ahead.Root != root {
		return fault(c.file, c.size, "%s signs another tree of %d records: the key has signed two logs, or these "+
			"records are not those that it signed then", c.place, c.ahead.Size)
	}
	c.fit, c.size = c.fit+1, c.ahead.Size
	return c.advance()
}

// end reports checkpoints that are larger than the folder's tree.
func (c *former) end(newest *Checkpoint) error {
	if c.ahead == nil {
		return nil
	}
	return fault(c.file, newest.Size, "%s: it is of %d records, more than the newest has", c.place, c.ahead.Size)
}

func (c *former) close() {
	if c.stop != nil {
		_ = c.stop() // opened for reading only
	}
}

// ReadNotes reads signed notes from a file that the reader has kept: a single note, or lines like those of FormerFile.
func ReadNotes(from io.Reader) (notes [][]byte, err error) {
	content, err := io.ReadAll(io.LimitReader(from, longestNotes+1))
	switch {
	case err != nil:
		return nil, err
	case len(content) > longestNotes:
		return nil, fmt.Errorf("it is longer than %d bytes", longestNotes)
	case !bytes.HasPrefix(content, []byte("{")):
		return [][]byte{content}, nil
	}
	for line := range bytes.Lines(content) {
		var j formerJSON
		if err := json.Unmarshal(line, &j); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(notes)+1, err)
		}
		notes = append(notes, []byte(j.Note))
	}
	return notes, nil
}

// longestNotes bounds such a file: a year's checkpoints are smaller.
const longestNotes = 1 << 30
