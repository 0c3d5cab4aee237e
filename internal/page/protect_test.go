package page

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// On a loopback address a name that only resolves to it is somebody else's: DNS rebinding.
func TestALoopbackAddressAnswersToNoOtherName(t *testing.T) {
	t.Parallel()
	fine := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for _, c := range []struct {
		listening, host string
		code            int
	}{
		{"127.0.0.1", "127.0.0.1:7432", 200},
		{"127.0.0.1", "127.0.0.1", 200},
		{"127.0.0.1", "localhost:7432", 200},
		{"127.0.0.1", "LocalHost.", 200},
		{"127.0.0.1", "[::1]:7432", 200},
		{"::1", "[::1]", 200},
		{"127.0.0.1", "rebound.example:7432", 421},
		{"127.0.0.1", "localhost.rebound.example", 421},
		{"127.0.0.1", "127.0.0.1.rebound.example", 421},
		{"127.0.0.1", "10.0.0.1:7432", 421},
		{"127.0.0.1", "0.0.0.0:7432", 421},
		{"127.0.0.1", "", 421},
		{"::1", "rebound.example", 421},
		{"10.0.0.1", "lapse.example", 200},
		{"0.0.0.0", "lapse.example", 200},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Host = c.host
		w := httptest.NewRecorder()
		OnlyLocal(&net.TCPAddr{IP: net.ParseIP(c.listening)}, fine).ServeHTTP(w, r)
		if w.Code != c.code {
			t.Errorf("at %s, Host %q: %d, want %d", c.listening, c.host, w.Code, c.code)
		}
	}
}
