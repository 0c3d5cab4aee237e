package folder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// A partition is a folder of segments. Each is named by the offset of its first record, and begins with a header that names the segment
// before it and that one's length: so a segment that was removed from the middle, cut, or brought from elsewhere is detected without
// reading the others. Records are only appended to the last segment; the others never change.

const (
	segmentSuffix = ".seg"
	headerSize    = 72
	noSegment     = -1 // the first segment has none before it
)

var magic = [8]byte{'l', 'a', 'p', 's', 'e', 's', 'e', 'g'}

// segment is a file of a partition.
type segment struct {
	path string
	base int64 // offset of its first record
}

func segmentPath(dir string, base int64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", base, segmentSuffix))
}

// listSegments lists a partition's segments by their first offset. It ignores files whose names are no segment's.
func listSegments(dir string) ([]segment, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []segment
	for _, e := range entries {
		name, is := strings.CutSuffix(e.Name(), segmentSuffix)
		base, err := strconv.ParseInt(name, 10, 64)
		if !is || err != nil || base < 0 || filepath.Join(dir, e.Name()) != segmentPath(dir, base) {
			continue
		}
		all = append(all, segment{filepath.Join(dir, e.Name()), base})
	}
	slices.SortFunc(all, func(a, b segment) int { return int(min(max(a.base-b.base, -1), 1)) })
	return all, nil
}

// header is the beginning of a segment.
type header struct {
	folder       uuid.UUID // of the folder that it was made in
	place        uint32    // of its topic and partition
	base         int64
	before       int64 // base of the segment before it; noSegment for none
	beforeLength int64 // of that one's file
	made         time.Time
}

// placeOf distinguishes the segments of different partitions.
func placeOf(topic string, partition int32) uint32 {
	return crc32.Checksum(fmt.Appendf(nil, "%s/%d", topic, partition), castagnoli)
}

func (h *header) bytes() []byte {
	b := append(make([]byte, 0, headerSize), magic[:]...)
	b = binary.LittleEndian.AppendUint32(b, format)
	b = append(b, h.folder[:]...)
	b = binary.LittleEndian.AppendUint32(b, h.place)
	for _, v := range []int64{h.base, h.before, h.beforeLength, h.made.UnixMilli()} {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	b = binary.LittleEndian.AppendUint32(b, 0)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// parseHeader reads a header; ok is false if the bytes are none.
func parseHeader(b []byte) (h header, ok bool) {
	if len(b) < headerSize || [8]byte(b) != magic || binary.LittleEndian.Uint32(b[8:]) != format ||
		binary.LittleEndian.Uint32(b[headerSize-4:]) != crc32.Checksum(b[:headerSize-4], castagnoli) {
		return header{}, false
	}
	number := func(at int) int64 { return int64(binary.LittleEndian.Uint64(b[at:])) }
	return header{
		folder: uuid.UUID(b[12:28]), place: binary.LittleEndian.Uint32(b[28:]),
		base: number(32), before: number(40), beforeLength: number(48), made: time.UnixMilli(number(56)),
	}, true
}

// checkChain checks that the segments of a partition are those that publishers of this folder have made, each after the one before.
// Retention may have deleted the first ones of a topic of events. It reads only headers, and returns the last one. torn: the last segment
// has an incomplete header and nothing else, because the process ended while it made the segment.
func checkChain(all []segment, id uuid.UUID, place uint32, forever bool) (last header, torn bool, err error) {
	for i, s := range all {
		size, head, err := readHead(s.path)
		if err != nil {
			return last, false, err
		}
		h, ok := parseHeader(head)
		switch {
		case !ok && i == len(all)-1 && size <= headerSize:
			return last, true, nil
		case !ok:
			return last, false, corrupt(s.path, "it does not begin as a segment does")
		case h.folder != id:
			return last, false, corrupt(s.path, "it was made in another folder")
		case h.place != place || h.base != s.base:
			return last, false, corrupt(s.path, "it was made as another segment, or of another partition")
		}
		if err := follows(all, i, &h, forever); err != nil {
			return last, false, err
		}
		last = h
	}
	return last, false, nil
}

// follows checks that a segment comes after the one before it.
func follows(all []segment, i int, h *header, forever bool) error {
	path := all[i].path
	if i == 0 {
		if forever && (h.base != 0 || h.before != noSegment) {
			return corrupt(path, "it is the first, and what was before it is missing: put it back: this topic is kept forever")
		}
		return nil
	}
	before := all[i-1]
	if h.before != before.base {
		return corrupt(path, "it follows the segment %s, which is missing: put it back", filepath.Base(segmentPath("", h.before)))
	}
	info, err := os.Lstat(before.path)
	if err != nil {
		return err
	}
	if info.Size() != h.beforeLength {
		return corrupt(before.path, "it has %d bytes, and had %d when the next one was begun", info.Size(), h.beforeLength)
	}
	return nil
}

// readHead reads a file's length and its header, as far as it exists. It refuses anything that is not a regular file.
func readHead(path string) (size int64, head []byte, err error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, nil, err
	}
	if !info.Mode().IsRegular() {
		return 0, nil, &PlaceError{path, "it is no file of this folder: links are not followed"}
	}
	file, err := os.Open(path)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	head = make([]byte, headerSize)
	n, err := io.ReadFull(file, head)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return info.Size(), head[:n], err
}

// scanned is the result of reading a segment.
type scanned struct {
	frames [][]byte
	next   int64 // the offset after its last record
	good   int64 // the length of the file's part with whole records
	cut    error // why reading stopped: nil at the end
}

// scan reads a segment's records from its bytes.
func scan(content []byte, base int64) scanned {
	s := scanned{next: base, good: headerSize}
	if _, ok := parseHeader(content); !ok {
		s.good, s.cut = 0, errShort
		return s
	}
	rest := content[headerSize:]
	for len(rest) > 0 {
		frame, after, err := cutFrame(rest)
		if err == nil {
			var offset int64
			if offset, err = offsetOf(frame); err == nil && offset != s.next {
				err = errBroken
			}
		}
		if err != nil {
			s.cut = err
			return s
		}
		s.frames, s.next, s.good, rest = append(s.frames, frame), s.next+1, s.good+int64(len(frame)), after
	}
	return s
}

// readSegment reads a whole segment. If retention has deleted it meanwhile, the error is fs.ErrNotExist.
func readSegment(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &PlaceError{path, "it is no file of this folder: links are not followed"}
	}
	return os.ReadFile(path)
}

// isGone reports whether a file does not exist.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) }
