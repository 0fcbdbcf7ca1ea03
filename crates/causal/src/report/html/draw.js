// Draws a report into the page. The same code draws a finished report and one that is still growing. Names are
// untrusted text: they become text nodes and attribute values, never markup.
'use strict';
const causal = (() => {
  const COLUMNS = [0.2, 0.5];
  const KINDS = { function: 'function', line: 'line', inlined: 'inlined', path: 'call path', span: 'span', upstream: 'upstream' };
  const LOADS = {
    closed: ['Closed', 'sends more when it is answered sooner'],
    limited: ['Limited', 'keeps its own rate: only latency can improve'],
    mixed: ['Mixed', 'follows the program only in part'],
  };
  const FOLDS = {
    whole: 'contains nearly all work of its threads',
    wrapper: 'a library’s wrapper around the program’s code',
    runtime: 'code of the runtime, of a library or of the system',
    caller: 'spends its time in one function that it calls',
    callee: 'a library’s function with nearly all samples of its caller',
  };
  const GENERATOR = ['Generator limited', 'does not follow the program: most likely its generator sends as fast as it can'];
  const UNKNOWN = ['Unknown', 'taken as closed: faster responses bring more requests'];
  function loadOf(load) {
    if (load.kind === 'closed') return load.elasticity == null ? UNKNOWN : LOADS.closed;
    return load.limit === 'generator' ? GENERATOR : LOADS[load.kind];
  }
  const state = { report: null, measure: null, sort: null, ascending: false };

  const place = id => document.getElementById(id);

  function make(space, name, attributes, children) {
    const node = space ? document.createElementNS(space, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) if (value != null) node.setAttribute(key, value);
    node.append(...children.filter(child => child != null));
    return node;
  }
  const html = (name, attributes, ...children) => make(null, name, attributes, children);
  const svg = (name, attributes, ...children) => make('http://www.w3.org/2000/svg', name, attributes, children);
  const fill = (node, ...children) => node.replaceChildren(...children.filter(child => child != null));

  // Numbers, formatted as in the report's sentences.
  function places(part) {
    const percent = Math.abs(part) * 100;
    return percent < 9.95 && Math.abs(percent - Math.round(percent)) > 0.04 ? 1 : 0;
  }
  function digits(part, places) {
    const text = (part * 100).toFixed(places);
    return (/^-[0.]*$/.test(text) ? text.slice(1) : text).replace('-', '−');
  }
  const percent = part => digits(part, places(part)) + '\u00a0%';
  const signed = part => (part >= 0.0005 ? '+' : '') + percent(part);
  // Whether the interval would be longer if more than all of the time could be saved.
  const isCut = point => point.high >= 1 && point.high - point.gain < point.gain - point.low;
  const halfWidth = point => (isCut(point) ? point.gain - point.low : (point.high - point.low) / 2);
  const isKnown = point => halfWidth(point) <= 1;
  // With both ends if the interval is cut.
  const half = point =>
    isCut(point)
      ? `(${digits(point.low, places(point.gain))} to ${digits(point.high, places(point.gain))})`
      : '± ' + digits(halfWidth(point), Math.max(places(point.gain), 1));
  function count(number) {
    if (number >= 1e7) return (number / 1e6).toFixed(1) + '\u00a0M';
    if (number >= 1e4) return (number / 1e3).toFixed(1) + '\u00a0k';
    return number >= 100 ? number.toFixed(0) : number.toFixed(1);
  }
  function time(ns) {
    if (ns >= 1e9) return (ns / 1e9).toFixed(2) + ' s';
    if (ns >= 1e6) return (ns / 1e6).toFixed(2) + ' ms';
    return ns >= 1e3 ? (ns / 1e3).toFixed(1) + ' µs' : ns.toFixed(0) + ' ns';
  }
  const grouped = number => String(number).replace(/\B(?=(\d{3})+$)/g, '\u202f');
  const seconds = number => (number < 10 ? number.toFixed(1) : number.toFixed(0)) + ' s';

  // A name as code, with line breaks allowed between its parts.
  const code = name => html('code', {}, ...name.split(/(?<=::|\/|> )/).flatMap(part => [part, html('wbr', {})]));

  // A sentence; its names, in backticks, become code.
  const sentence = text => text.replace(/ %/g, '\u00a0%').replace(/± /g, '±\u00a0').split('`').map((part, at) => (at % 2 ? code(part) : part));

  const at = (curve, speedup) => curve.find(point => Math.abs(point.speedup - speedup) < 1e-6);
  const top = curve => curve[curve.length - 1];
  const tone = point => (!point ? '' : point.low > 0 ? 'yes' : point.high < 0 ? 'no' : '');

  // The selectable curves: throughput and latency of each progress point that has any.
  function measures(report) {
    const first = report.progress.length ? report.progress[0].name : 'progress';
    const list = [];
    const add = (key, label, curve) => report.targets.some(target => curve(target).length) && list.push({ key, label, curve });
    add('pace', first + ' · throughput', target => target.curve);
    add('latency', first + ' · latency', target => target.latency);
    const others = new Set(report.targets.flatMap(target => (target.others || []).map(other => other.progress)));
    for (const name of others) {
      const of = target => (target.others || []).find(other => other.progress === name) || { curve: [], latency: [] };
      add('pace of ' + name, name + ' · throughput', target => of(target).curve);
      add('latency of ' + name, name + ' · latency', target => of(target).latency);
    }
    return list;
  }

  function current(list, report) {
    return (
      list.find(measure => measure.key === state.measure) ||
      (report.load.kind === 'limited' && list.find(measure => measure.key === 'latency')) ||
      list[0]
    );
  }

  function drawWords(report) {
    const words = report.words && report.words.length ? report.words : ['No measurements yet.'];
    fill(place('headline'), ...sentence(words[0]));
    fill(place('words'), ...words.slice(1).map(text => html('li', {}, ...sentence(text))));
    const parts = [html('b', {}, report.program || 'Causal profile')];
    if (report.began) parts.push(' · ' + new Date(report.began * 1000).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' }));
    if (report.seconds) parts.push(' · ' + seconds(report.seconds));
    fill(place('about'), ...parts);
  }

  function drawFacts(report) {
    const fact = (name, value, ...more) =>
      html('div', {}, html('dt', {}, name), html('dd', {}, value, html('small', {}, ...more)));
    const facts = [];
    const first = report.progress[0];
    if (first) {
      facts.push(fact(first.name, count(first.baseline_rate) + '/s', grouped(first.count) + ' counted'));
      if (first.baseline_ns != null) {
        facts.push(fact('Mean time per unit', time(first.baseline_ns), 'from begin to end, without a speed-up'));
      }
    }
    const [load, says] = loadOf(report.load);
    facts.push(fact('Load', load, says + '; busiest thread ' + percent(report.load.utilisation)));
    const cost = report.perturbation;
    facts.push(
      fact(
        'The profile took',
        percent(cost.paused + cost.recording + cost.own),
        `of ${percent(cost.budget)} allowed: pauses ${percent(cost.paused)}, recording ${percent(cost.recording)}, its own threads ${percent(cost.own)}`,
      ),
    );
    fill(place('facts'), ...facts);
  }

  function drawMeasures(list, chosen) {
    const select = place('measure');
    fill(select, ...list.map(measure => html('option', { value: measure.key }, measure.label)));
    if (chosen) select.value = chosen.key;
    select.parentElement.hidden = list.length < 2;
  }

  // Rows in the chosen order; without a choice, in the report's own.
  function ordered(report, curve) {
    const rows = report.targets.map((target, index) => ({ target, index, curve: curve(target) }));
    const values = {
      name: row => row.target.name,
      share: row => row.target.share,
      samples: row => row.target.samples,
      mode: row => row.target.mode,
    };
    for (const column of COLUMNS) values['gain' + column * 100] = row => (at(row.curve, column) || { gain: -Infinity }).gain;
    const value = values[state.sort];
    if (!value) return rows;
    const way = state.ascending ? 1 : -1;
    return rows.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      return (x < y ? -way : x > y ? way : 0) || a.index - b.index;
    });
  }

  function gainCell(curve, column) {
    const point = at(curve, column);
    const head = percent(column) + ' faster';
    if (!point) return html('td', { class: 'n gain', 'data-head': head }, '–');
    if (!isKnown(point)) return html('td', { class: 'n gain', 'data-head': head, title: 'too little data' }, '?');
    const attributes = { class: 'n gain ' + tone(point), 'data-head': head, 'data-speedup': column, 'data-gain': point.gain };
    return html('td', attributes, html('b', {}, signed(point.gain)), ' ', html('small', {}, half(point)));
  }

  // Two bars on one scale: the target's gain with its interval, and the gain that an ordinary profile predicts.
  function bars(point, scale) {
    if (!point || !isKnown(point)) return html('td', { class: 'bars' });
    const zero = scale.low < 0 ? (-scale.low / (scale.high - scale.low)) * 100 : 0;
    const x = gain => Math.max(0, Math.min(100, zero + (gain / (scale.high - scale.low)) * 100));
    const bar = (gain, y, height, attributes) =>
      svg('rect', { x: Math.min(x(0), x(gain)) + '%', width: Math.abs(x(gain) - x(0)) + '%', y, height, rx: 2, ...attributes });
    const label = `${signed(point.gain)} for ${percent(point.speedup)} faster; an ordinary profile predicts ${percent(point.expected)}`;
    const drawing = svg(
      'svg',
      { role: 'img', 'aria-label': label },
      svg('title', {}, label),
      bar(point.gain, 3, 13, { fill: point.gain < 0 ? 'var(--loss)' : 'var(--accent)' }),
      svg('line', { class: 'whisker', x1: x(point.low) + '%', x2: x(point.high) + '%', y1: 9.5, y2: 9.5 }),
      bar(point.expected, 20, 9, { fill: 'var(--plain)' }),
    );
    return html('td', { class: 'bars' }, drawing);
  }

  function drawTable(report, curve) {
    const points = report.targets.map(target => at(curve(target), COLUMNS[1])).filter(point => point && isKnown(point));
    const scale = {
      low: Math.max(-1, Math.min(0, ...points.map(point => point.gain))),
      high: Math.min(1, Math.max(0.01, ...points.map(point => Math.max(point.gain, point.expected)))),
    };
    const rows = ordered(report, curve).map(({ target, index, curve }) =>
      html(
        'tr',
        { 'data-target': target.name },
        html(
          'td',
          { class: 'name' },
          html('a', { href: '#target-' + index }, code(target.name)),
          html('span', { class: 'kind' }, KINDS[target.kind]),
        ),
        ...COLUMNS.map(column => gainCell(curve, column)),
        bars(at(curve, COLUMNS[1]), scale),
        html('td', { class: 'n', 'data-head': 'Ordinary share', 'data-share': target.share }, percent(target.share)),
        html('td', { class: 'n', 'data-head': 'Samples' }, grouped(target.samples)),
        html('td', { class: 'n', 'data-head': 'Found by' }, target.mode),
      ),
    );
    fill(place('rank').tBodies[0], ...rows);
    for (const head of place('rank').tHead.querySelectorAll('[data-sort]')) {
      const isKey = head.dataset.sort === state.sort;
      isKey ? head.setAttribute('aria-sort', state.ascending ? 'ascending' : 'descending') : head.removeAttribute('aria-sort');
    }
    place('nothing').hidden = rows.length > 0;
    place('rank').hidden = !rows.length;
  }

  // One scale for all panels, so that they can be compared.
  function scaleOf(report, curve) {
    const points = report.targets.flatMap(curve);
    const low = Math.max(-1, Math.min(0, ...points.map(point => Math.max(point.low, point.gain - 0.15))));
    const high = Math.min(1, Math.max(0.04, ...points.map(point => Math.min(point.high, point.gain + 0.15))));
    const steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5];
    const step = steps.find(step => (high - low) / step <= 5) || 1;
    return { low: Math.floor(low / step + 1e-9) * step, high: Math.ceil(high / step - 1e-9) * step, step };
  }

  const FRAME = { width: 340, height: 210, left: 42, right: 12, top: 10, bottom: 24 };

  function panel(report, target, index, curve, scale, showConfirmed) {
    const { width, height, left, right, top: above, bottom } = FRAME;
    const x = speedup => left + speedup * (width - left - right);
    const y = gain => above + ((scale.high - gain) / (scale.high - scale.low)) * (height - above - bottom);
    const line = points => points.map(([a, b], at) => `${at ? 'L' : 'M'}${x(a).toFixed(2)} ${y(b).toFixed(2)}`).join('');
    const from = [0, 0];
    const uppers = curve.map(point => [point.speedup, point.high]);
    const lowers = curve.map(point => [point.speedup, point.low]).reverse();
    const clip = 'clip-' + index;
    const grid = [];
    for (let tick = scale.low; tick <= scale.high + 1e-9; tick += scale.step) {
      const isZero = Math.abs(tick) < 1e-9;
      grid.push(svg('path', { class: isZero ? 'zero' : 'grid', d: `M${left} ${y(tick)}H${width - right}` }));
      grid.push(svg('text', { x: left - 7, y: y(tick) + 3.5, 'text-anchor': 'end' }, percent(tick)));
    }
    for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
      const anchor = tick === 1 ? 'end' : tick === 0 ? 'start' : 'middle';
      grid.push(svg('text', { x: x(tick), y: height - 6, 'text-anchor': anchor }, percent(tick)));
    }
    const marks = (showConfirmed ? target.confirmed || [] : []).flatMap(point => [
      svg('path', { class: 'whisker', d: `M${x(point.speedup)} ${y(point.low)}V${y(point.high)}` }),
      svg(
        'path',
        { class: 'confirmed', d: `M${x(point.speedup)} ${y(point.gain) - 4.5}l4.5 4.5l-4.5 4.5l-4.5 -4.5z` },
        svg('title', {}, `By pauses, ${percent(point.speedup)} faster: ${signed(point.gain)} ${half(point)}`),
      ),
    ]);
    const cursor = svg('path', { class: 'cursor', d: '' });
    const last = top(curve);
    const label = `${target.name}: the gain by its speed-up, ${signed(last.gain)} ${half(last)} at ${percent(last.speedup)}`;
    const drawing = svg(
      'svg',
      { viewBox: `0 0 ${width} ${height}`, role: 'img', tabindex: 0, 'aria-label': label },
      svg('clipPath', { id: clip }, svg('rect', { x: left, y: above, width: width - left - right, height: height - above - bottom })),
      ...grid,
      svg(
        'g',
        { 'clip-path': `url(#${clip})` },
        svg('path', { class: 'band', d: line([from, ...uppers, ...lowers]) + 'Z' }),
        svg('path', { class: 'expected', d: line([from, ...curve.map(point => [point.speedup, point.expected])]) }),
        svg('path', { class: 'curve', d: line([from, ...curve.map(point => [point.speedup, point.gain])]) }),
        cursor,
      ),
      ...curve.map(point => svg('circle', { class: 'dot', cx: x(point.speedup), cy: y(point.gain), r: 2.4 })),
      ...marks,
    );
    const readout = html('p', { 'aria-live': 'polite' });
    const show = point => {
      cursor.setAttribute('d', `M${x(point.speedup)} ${above}V${height - bottom}`);
      fill(
        readout,
        `${percent(point.speedup)} faster: `,
        html('b', {}, signed(point.gain)),
        ` (${digits(point.low, 1)} to ${digits(point.high, 1)}), ordinary ${percent(point.expected)}`,
      );
    };
    const rest = () => {
      cursor.setAttribute('d', '');
      fill(readout, `found by ${target.mode === 'confirmed' ? 'pauses' : 'replay'}, ${grouped(target.samples)} samples`);
    };
    drawing.addEventListener('pointermove', event => {
      const box = drawing.getBoundingClientRect();
      const speedup = (((event.clientX - box.left) / box.width) * width - left) / (width - left - right);
      show(curve.reduce((a, b) => (Math.abs(b.speedup - speedup) < Math.abs(a.speedup - speedup) ? b : a)));
    });
    let chosen = -1;
    drawing.addEventListener('keydown', event => {
      const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!way) return;
      event.preventDefault();
      chosen = Math.max(0, Math.min(curve.length - 1, chosen + way));
      show(curve[chosen]);
    });
    drawing.addEventListener('pointerleave', rest);
    drawing.addEventListener('blur', rest);
    rest();
    return html(
      'article',
      { class: 'card panel' + (last.high < 0 ? ' loss' : ''), id: 'target-' + index, 'data-target': target.name },
      html('header', {}, code(target.name), html('span', {}, KINDS[target.kind])),
      drawing,
      readout,
    );
  }

  function drawPanels(report, chosen) {
    const scale = scaleOf(report, chosen.curve);
    const panels = report.targets.map((target, index) => {
      const curve = chosen.curve(target);
      return curve.length > 1 ? panel(report, target, index, curve, scale, chosen.key === 'pace') : null;
    });
    fill(place('panels'), ...panels);
  }

  const rows = (node, list) =>
    fill(node, ...list.map(cells => html('tr', {}, ...cells.map(cell => html('td', {}, cell)))));

  function drawMeasured(report) {
    const points = report.progress.map(point => [
      code(point.name),
      `${count(point.baseline_rate)} a second`,
      point.baseline_ns == null ? '–' : time(point.baseline_ns),
      grouped(point.count),
    ]);
    rows(place('progress').tBodies[0], points);
    const cost = report.perturbation;
    const elasticity = report.load.elasticity;
    rows(place('cost').tBodies[0], [
      ['Load', loadOf(report.load)[0] + (elasticity == null ? '' : `, elasticity ${elasticity.toFixed(2)}`)],
      ['Busiest thread', percent(report.load.utilisation)],
      ['Windows recorded', grouped(cost.windows[0])],
      ['Windows with pauses', grouped(cost.windows[1]) + (cost.aborted ? `, ${cost.aborted} cut short` : '')],
      ['Allowed', percent(cost.budget)],
      ['Pauses and holds', percent(cost.paused)],
      ['Recording', percent(cost.recording)],
      ["The profiler's own threads", percent(cost.own)],
    ]);
  }

  function drawParts(report, chosen) {
    const parts = report.parts || [];
    place('servers').hidden = !parts.length;
    if (!parts.length) return;
    const table = place('parts');
    fill(
      table.tHead,
      html('tr', {}, html('th', {}, html('span', {}, '50 % faster')), ...parts.map(part => html('th', { class: 'n' }, html('span', {}, part.program)))),
    );
    const body = report.targets.map(target => {
      const cells = parts.map(part => {
        const same = part.targets.find(it => it.name === target.name && it.kind === target.kind);
        const point = same && chosen && at(chosen.curve(same), COLUMNS[1]);
        return html('td', { class: 'n gain ' + tone(point) }, ...(point && isKnown(point) ? [html('b', {}, signed(point.gain)), ' ', html('small', {}, half(point))] : [point ? '?' : '–']));
      });
      return html('tr', {}, html('td', {}, code(target.name)), ...cells);
    });
    const rates = parts.map(part => html('td', { class: 'n' }, part.progress[0] ? count(part.progress[0].baseline_rate) + ' a second' : '–'));
    fill(table.tBodies[0], ...body, html('tr', {}, html('td', {}, 'baseline'), ...rates));
  }

  function drawReasons(report) {
    const list = report.reasons.map(reason =>
      html('li', { 'data-code': reason.code }, html('span', {}, reason.target ? code(reason.target) : null, (reason.target ? ': ' : '') + reason.text)),
    );
    fill(place('reasons'), ...list);
    place('notes').hidden = !list.length;
  }

  function drawFolds(folded) {
    const list = folded.map(({ name, folded: { why, into } }) =>
      html('li', {}, html('span', {}, code(name), ': ' + (FOLDS[why] || why), into ? ', ' : null, into ? code(into) : null)),
    );
    fill(place('folds'), ...list);
    place('folded').hidden = !list.length;
  }

  function draw(whole) {
    state.report = whole;
    // Folded targets have a list of their own, and no rank or curve.
    const report = { ...whole, targets: whole.targets.filter(target => !target.folded) };
    drawFolds(whole.targets.filter(target => target.folded));
    const list = measures(report);
    const chosen = current(list, report);
    drawWords(report);
    drawFacts(report);
    drawMeasures(list, chosen);
    drawTable(report, chosen ? chosen.curve : () => []);
    place('curves').hidden = !chosen;
    if (chosen) drawPanels(report, chosen);
    drawMeasured(report);
    drawParts(report, chosen);
    drawReasons(report);
    place('measured').hidden = false;
  }

  place('measure').addEventListener('change', event => {
    state.measure = event.target.value;
    draw(state.report);
  });
  place('rank').tHead.addEventListener('click', event => {
    const head = event.target.closest('[data-sort]');
    if (!head || !state.report) return;
    const key = head.dataset.sort;
    state.ascending = state.sort === key ? !state.ascending : key === 'name';
    state.sort = key;
    draw(state.report);
  });

  // The theme chosen earlier, if the browser stores it; else the system's.
  const root = document.documentElement;
  const remember = work => {
    try {
      return work();
    } catch {
      return null;
    }
  };
  const theme = remember(() => localStorage.getItem('theme'));
  if (theme === 'light' || theme === 'dark') root.dataset.theme = theme;
  place('theme').addEventListener('click', () => {
    const system = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
    root.dataset.theme = (root.dataset.theme || system) === 'dark' ? 'light' : 'dark';
    remember(() => localStorage.setItem('theme', root.dataset.theme));
  });

  const written = JSON.parse(place('report').textContent);
  if (written) draw(written);
  return { draw, percent, signed, html, fill };
})();
