//go:build long

package page_test

import (
	"net/http/httptest"
	"testing"

	"lapse/internal/browsertest"
	"lapse/internal/pgtest"
)

// What people see, in a real browser: the whole without scripts, refreshed in place with them, on a phone, in the dark, and by what a
// screen reader needs.
func TestThePageInARealBrowser(t *testing.T) {
	b := browsertest.Open(t)
	db := pgtest.New(t, pgtest.Newest(t))
	world(t, db)
	server := httptest.NewServer(show(t, db, running).mux)
	defer server.Close()
	is := func(what, expression string) {
		t.Helper()
		if got := b.Do("eval !!(" + expression + ")"); got != "true" {
			t.Errorf("%s is not so: %s", what, expression)
		}
	}

	b.Do("size 1280 900")
	b.Do("open " + server.URL)
	b.Do("wait document.querySelectorAll('.spark').length > 0")
	is("each policy has a row", "document.querySelectorAll('tr[id^=policy-]').length === 8")
	is("the hostile name is text", "document.querySelectorAll('img').length === 0 && document.body.textContent.includes('<img src=x onerror=alert(1)>')")
	is("what reverses text is shown as an escape", `document.body.textContent.includes('\\u202e')`)
	is("commands are code", "document.querySelectorAll('.said code').length > 2 && !document.body.textContent.includes('`lapse')")
	is("no key is shown", "!document.body.innerHTML.includes('a-key-that')")
	b.Fits("wide")
	b.Axe("wide")
	b.Shot("wide")

	// A refresh leaves alone what has not changed: the same elements, the focus, the scroll position.
	b.Do("eval document.querySelector('#policy-paused a').focus({preventScroll: true}), document.querySelector('#policy-tokens').kept = 1, scrollTo(0, 300)")
	b.Do("eval window.top0 = scrollY")
	db.Exec(t, "update lapse.gate set state = 'paused' where name = 'tokens'")
	b.Do("wait document.querySelector('#policy-tokens').textContent.includes('paused')")
	is("the row is the same element", "document.querySelector('#policy-tokens').kept === 1")
	is("the focus stays", "document.activeElement === document.querySelector('#policy-paused a')")
	is("the page does not scroll", "scrollY === window.top0")
	db.Exec(t, "update lapse.gate set state = 'dropped' where name = 'observed'")
	b.Do("wait !document.querySelector('#policy-observed')")
	is("the focus stays when a row goes", "document.activeElement === document.querySelector('#policy-paused a')")
	b.Do("eval document.querySelector('#refresh button').click()")
	is("refreshing can be stopped", "document.querySelector('#refresh button').textContent === 'Refresh again'")

	b.Do("size 390 844")
	b.Do("open " + server.URL)
	b.Fits("phone")
	b.Axe("phone")
	b.Shot("phone")
	b.Do("size 1280 900")
	b.Do("scheme dark")
	is("it is dark", "getComputedStyle(document.documentElement).backgroundColor === 'rgb(20, 23, 26)'")
	b.Axe("dark")
	b.Shot("dark")
	b.Do("scheme light")

	b.Do("open " + server.URL + "/policies/sessions-30d")
	b.Do("wait document.querySelectorAll('rect').length > 300")
	is("the function that deletes is open, the others are not", "document.querySelector('#functions').parentElement.querySelectorAll('details[open]').length === 1")
	is("it is the one that deletes", "document.querySelector('#function-0 pre').textContent.includes('delete from')")
	b.Do("eval document.querySelector('#months').open = true, document.querySelector('#function-0').open = false")
	b.Do("eval window.before = document.querySelector('#freshness').textContent")
	b.Do("wait document.querySelector('#freshness').textContent !== window.before")
	is("what was folded and unfolded stays so", "document.querySelector('#months').open && !document.querySelector('#function-0').open")
	b.Do("eval document.querySelector('#function-0').open = true")
	b.Axe("policy")
	b.Shot("policy")
	b.Do("size 390 844")
	b.Fits("a policy, phone")
	b.Shot("policy-phone")
	b.Do("scheme dark")
	b.Axe("policy, dark, phone")
	b.Do("open " + server.URL + "/policies/" + markup)
	is("the hostile name is text there too", "document.querySelectorAll('img').length === 0")
	b.Fits("the hostile name, phone")
	b.Do("open " + server.URL + "/policies/" + longest)
	b.Fits("the longest name, phone")
	b.Shot("longest")
	b.Quiet("all of it")

	b.Do("scripts off")
	b.Do("scheme light")
	b.Do("size 1280 900")
	b.Do("open " + server.URL)
	is("without scripts it is whole", "document.querySelectorAll('tr[id^=policy-]').length === 7 && document.querySelectorAll('.way li').length === 4")
	is("without scripts it is asked for again", "document.querySelector('meta[http-equiv=refresh]') !== null")
	b.Do("scripts on")
	b.Do("open " + server.URL)
	server.CloseClientConnections()
	server.Close()
	b.Do("wait document.querySelector('#lost') && document.querySelector('#lost').textContent.includes('does not answer')")
	b.Shot("lost")
}
