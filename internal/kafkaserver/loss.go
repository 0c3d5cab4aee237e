package kafkaserver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Bytes is how much room a partition's records take on the broker's disk.
func (s *Server) Bytes(topic string, partition int) (bytes int64, err error) {
	segments, err := filepath.Glob(filepath.Join(s.dataDir(), fmt.Sprintf("%s-%d", topic, partition), "*.log"))
	if err != nil {
		return 0, err
	}
	for _, segment := range segments {
		info, err := os.Stat(segment)
		if err != nil {
			return 0, err
		}
		bytes += info.Size()
	}
	return bytes, nil
}

// LoseTail has a broker that is not running lose the last batches of a partition, as a power cut does that comes before its
// disk has them. It returns where the partition ends then: always after a whole batch, as Kafka's own recovery leaves it.
func (s *Server) LoseTail(topic string, partition, batches int) (end int64, err error) {
	if s.Running() {
		return 0, errors.New("lose the end of a partition: the broker is running")
	}
	segments, err := filepath.Glob(filepath.Join(s.dataDir(), fmt.Sprintf("%s-%d", topic, partition), "*.log"))
	if err != nil {
		return 0, err
	}
	if len(segments) == 0 {
		return 0, fmt.Errorf("lose the end of %s/%d: there is no such partition", topic, partition)
	}
	slices.Sort(segments)
	newest := segments[len(segments)-1]
	content, err := os.ReadFile(newest)
	if err != nil {
		return 0, err
	}
	type batch struct{ at, first, end int64 }
	var all []batch
	for at := int64(0); at+61 <= int64(len(content)); {
		header := content[at:]
		first, size := int64(binary.BigEndian.Uint64(header)), int64(binary.BigEndian.Uint32(header[8:]))
		if size == 0 {
			break // room that the broker has taken and not written
		}
		all = append(all, batch{at, first, first + int64(binary.BigEndian.Uint32(header[23:])) + 1})
		at += 12 + size
	}
	if len(all) < batches || batches < 1 {
		return 0, fmt.Errorf("lose the end of %s/%d: its newest segment has %d batches, not %d", topic, partition, len(all), batches)
	}
	cut := all[len(all)-batches]
	return cut.first, os.Truncate(newest, cut.at)
}

// LosePartition has a broker that is not running lose all of a partition, as a replaced disk does. It makes an empty one when
// it starts.
func (s *Server) LosePartition(topic string, partition int) error {
	if s.Running() {
		return errors.New("lose a partition: the broker is running")
	}
	folder := filepath.Join(s.dataDir(), fmt.Sprintf("%s-%d", topic, partition))
	if _, err := os.Stat(folder); err != nil {
		return fmt.Errorf("lose %s/%d: %w", topic, partition, err)
	}
	return os.RemoveAll(folder)
}
