// Command browser lets a test look at a page with a real Chromium. It reads commands from standard input, a line each, and answers each with
// a line: "ok", "ok" and a value in JSON, or "error" and why. It is outside of the product's module: the product needs no browser.
//
//	open URL            load a page, and wait until it is loaded
//	size WIDTH HEIGHT   of the window
//	scheme dark         what the system prefers: dark or light
//	scripts off         or on, for pages that are opened afterwards
//	eval EXPRESSION     in JavaScript; the answer is its value
//	wait EXPRESSION     until it is true, at most half a minute
//	shot FILE           a PNG of the whole page
//	print W H FILE      a PDF on paper of that size, in inches
//	axe FILE            run axe-core from that file; the answer is how many rules pass, and a list of findings
//	complaints          what the console and the Content-Security-Policy complained of since the last time
//	asked               the addresses that were asked for since the last time
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long one command may take.
const patience = 30 * time.Second

func main() {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	ctx, closeTab := chromedp.NewContext(allocator)
	defer closeTab()
	b := &browser{ctx: ctx}
	chromedp.ListenTarget(ctx, b.hear)
	if err := chromedp.Run(ctx, log.Enable(), network.Enable(), runtime.Enable()); err != nil {
		fmt.Println("error", strconv.Quote(err.Error()))
		os.Exit(1)
	}
	fmt.Println("ok")
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		command, argument, _ := strings.Cut(lines.Text(), " ")
		value, err := b.do(command, argument)
		text := []byte{}
		if err == nil && value != nil {
			text, err = json.Marshal(value)
		}
		if err != nil {
			fmt.Println("error", strconv.Quote(err.Error()))
			continue
		}
		fmt.Println(strings.TrimSpace("ok " + string(text)))
	}
}

// browser is one tab.
type browser struct {
	ctx        context.Context
	mutex      sync.Mutex
	complaints []string
	asked      []string
}

// hear keeps what the page complains of, and what it asks for.
func (b *browser) hear(event any) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError || e.Entry.Level == log.LevelWarning {
			b.complaints = append(b.complaints, e.Entry.Text+" "+e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		b.complaints = append(b.complaints, e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			b.complaints = append(b.complaints, fmt.Sprint("the console: ", e.Type))
		}
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
	}
}

// taken is what was kept since the last time.
func (b *browser) taken(kept *[]string) []string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	all := append([]string{}, *kept...)
	*kept = nil
	return all
}

func (b *browser) do(command, argument string) (value any, err error) {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	run := func(actions ...chromedp.Action) error { return chromedp.Run(ctx, actions...) }
	switch command {
	case "open":
		return nil, run(chromedp.Navigate(argument))
	case "size":
		var width, height int64
		if _, err := fmt.Sscan(argument, &width, &height); err != nil {
			return nil, err
		}
		return nil, run(emulation.SetDeviceMetricsOverride(width, height, 1, width < 600))
	case "scheme":
		return nil, run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: argument}}))
	case "scripts":
		return nil, run(emulation.SetScriptExecutionDisabled(argument == "off"))
	case "eval":
		return value, run(chromedp.Evaluate(argument, &value, awaited))
	case "wait":
		return nil, b.wait(ctx, argument)
	case "shot":
		var png []byte
		if err := run(chromedp.FullScreenshot(&png, 100)); err != nil {
			return nil, err
		}
		return nil, os.WriteFile(argument, png, 0o600)
	case "print":
		return nil, run(chromedp.ActionFunc(func(ctx context.Context) error { return toPaper(ctx, argument) }))
	case "axe":
		return b.axe(ctx, argument)
	case "complaints":
		return b.taken(&b.complaints), nil
	case "asked":
		return b.taken(&b.asked), nil
	}
	return nil, fmt.Errorf("there is no command %q", command)
}

func awaited(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }

// wait asks again and again.
func (b *browser) wait(ctx context.Context, expression string) error {
	for {
		var is bool
		if err := chromedp.Run(ctx, chromedp.Evaluate("!!("+expression+")", &is)); err != nil || is {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it never became true: %s", expression)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func toPaper(ctx context.Context, argument string) error {
	width, rest, _ := strings.Cut(argument, " ")
	height, file, _ := strings.Cut(rest, " ")
	var w, h float64
	if _, err := fmt.Sscan(width+" "+height, &w, &h); err != nil {
		return err
	}
	pdf, _, err := page.PrintToPDF().WithPaperWidth(w).WithPaperHeight(h).WithMarginTop(0).WithMarginBottom(0).WithMarginLeft(0).WithMarginRight(0).Do(ctx)
	if err != nil {
		return err
	}
	return os.WriteFile(file, pdf, 0o600)
}

// axe runs axe-core in the page. It comes over the debugger, which no Content-Security-Policy of the page concerns.
func (b *browser) axe(ctx context.Context, file string) (any, error) {
	script, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var found struct {
		Passes   int      `json:"passes"`
		Findings []string `json:"findings"`
	}
	const all = `axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}).then(r => ({
		passes: r.passes.length,
		findings: r.violations.map(v => v.id + ', ' + v.impact + ': ' + v.help + ': ' + v.nodes.map(n => n.html).join(' | ').slice(0, 400))}))`
	err = chromedp.Run(ctx, chromedp.Evaluate(string(script)+"\n;0", nil), chromedp.Evaluate(all, &found, awaited))
	return found, err
}
