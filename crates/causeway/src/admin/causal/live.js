// Starts profiles, looks at them once a second, and stops them.
(() => {
  const place = id => document.getElementById(id);
  const { control, go, bar, state, phase, get } = Object.fromEntries(
    ['control', 'go', 'bar', 'state', 'phase', 'get'].map(id => [id, place(id)]),
  );
  let running = false;
  let drawn = '';
  let next = 0;

  async function ask(method, path, body) {
    const options = { method, headers: body ? { 'Content-Type': 'application/json' } : {} };
    if (body) options.body = JSON.stringify(body);
    const answer = await fetch(path, options);
    const value = await answer.json();
    if (!answer.ok) throw new Error(value.error);
    return value;
  }

  function say(words, isBad) {
    phase.textContent = words;
    state.classList.toggle('bad', !!isBad);
  }

  function show(status) {
    running = status.running;
    go.textContent = running ? 'Stop' : 'Start';
    go.classList.toggle('stop', running);
    go.disabled = false;
    for (const field of control.querySelectorAll('input, select')) field.disabled = running;
    const done = running ? Math.min(1, status.elapsed / status.seconds) : status.report ? 1 : 0;
    bar.firstElementChild.style.width = done * 100 + '%';
    bar.setAttribute('aria-valuenow', Math.round(done * 100));
    get.hidden = !status.report;
    if (running) say(`${status.phase}: ${status.elapsed.toFixed(0)} of ${status.seconds.toFixed(0)} s`);
    else say(status.report ? 'ended; the report is below' : 'no profile yet: give the server its usual load, then start one');
    const report = JSON.stringify(status.report);
    if (status.report && report !== drawn) {
      drawn = report;
      causal.draw(status.report);
    }
  }

  async function look() {
    clearTimeout(next);
    try {
      show(await ask('GET', '/causal/status'));
    } catch (error) {
      say(error instanceof TypeError ? 'the server does not answer; trying again' : error.message, true);
    }
    next = setTimeout(look, document.hidden ? 5000 : 1000);
  }

  control.addEventListener('submit', async event => {
    event.preventDefault();
    // Read before fields are disabled: those are left out.
    const fields = new FormData(control);
    go.disabled = true;
    try {
      if (running) {
        show(await ask('POST', '/causal/stop'));
      } else {
        const targets = fields.get('targets').split(',').map(name => name.trim()).filter(Boolean);
        const wish = { seconds: +fields.get('seconds'), budget: fields.get('budget') / 100, mode: fields.get('mode'), targets };
        show(await ask('POST', '/causal/start', wish));
      }
    } catch (error) {
      say(error.message, true);
    }
    go.disabled = false;
  });
  document.addEventListener('visibilitychange', () => document.hidden || look());
  look();
})();
