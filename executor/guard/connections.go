package guard

import "fmt"

// Crowded is the reason of connections.
const Crowded Reason = "connections"

// crowdedShare is the share of the connections that may be in use before batches make room.
const crowdedShare = 0.9

// connections slows down while the server has few connections left. All workers but one give their connections back meanwhile: see
// Facts.Crowded.
type connections struct{}

func (connections) Ask(q *Question) Answer {
	if !q.Facts.Crowded() || q.unlimited() {
		return Answer{}
	}
	l := &q.Facts.load
	return slow(2, Crowded, fmt.Sprintf("%d of the server's %d connections are in use", l.Connections, l.MaxConnections),
		"close connections that nobody uses, put a pooler before the application, or raise max_connections")
}

// Crowded reports whether the server has so few connections left that workers should give theirs back.
func (f *Facts) Crowded() bool {
	return f.load.MaxConnections > 0 && float64(f.load.Connections) > crowdedShare*float64(f.load.MaxConnections)
}
