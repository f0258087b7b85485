"""The complete workflow of the application in a real browser, for two and for three classes."""

import pandas as pd
import pytest
from serve_tables import binary_table, class_table

import crcen


def choose(browser, selector, value):
    browser.run(f"document.querySelector('{selector}').value = '{value}'")
    browser.run(f"document.querySelector('{selector}').dispatchEvent(new Event('change'))")


def shown(browser, selector, seconds=120):
    browser.wait_until(
        f"!document.querySelector('{selector}').hidden || !document.querySelector('#message').hidden", seconds
    )
    assert browser.run("document.querySelector('#message').textContent") == ""


def commands(browser):
    return browser.run("[...document.querySelectorAll('pre.command[data-step]')].map((one) => one.textContent)")


UNLABELLED = """[...document.querySelectorAll('input, select, button, iframe, progress')].filter((one) =>
  !(one.labels && one.labels.length) && !one.getAttribute('aria-label') && !one.getAttribute('aria-labelledby') &&
  !one.textContent.trim() && !one.title).map((one) => one.outerHTML)"""


@pytest.mark.parametrize("kind", ["binary csv", "classes xlsx"])
def test_from_file_to_scored_rows(start, chromium, tmp_path, kind):
    (tmp_path / "saved").mkdir()
    target, suffix = ("fraud", "csv") if kind == "binary csv" else ("state", "xlsx")
    make = binary_table if kind == "binary csv" else class_table
    table, new = make(), make(120, seed=8).drop(columns=target)
    for frame, name in ((table, "cases"), (new, "new")):
        write = frame.to_csv if suffix == "csv" else frame.to_excel
        write(tmp_path / f"{name}.{suffix}", index=False)
    price, first = "--positive yes --budget 12.5", ""
    if kind != "binary csv":
        price, rows = "--costs costs.csv", "state,broken,worn,fine broken,0,2.5,1 worn,1,0,1 fine,1,1,0"
        first = f"printf '%s\\n' {rows} > costs.csv && "
    server = start("app", "--no-browser", "--folder", tmp_path / "saved")
    browser = chromium
    browser.open(server.address)
    browser.choose_file("#table-file", tmp_path / f"cases.{suffix}")
    shown(browser, "#step-goal")
    assert browser.run("document.querySelectorAll('#columns tbody tr').length") == 6
    choose(browser, "#target", target)
    shown(browser, "#classes")
    if kind == "binary csv":
        assert browser.run("document.querySelector('#positive').value") == "yes"
        browser.type_over("#value-budget", "12,5")
    else:
        assert browser.run("document.querySelector('#positive').value") == ""
        browser.type_over("#weight-0", "5")
        browser.type_over("#cost-0-1", "2,5")
        assert browser.run("document.querySelector('#classes-costs').checked")
    choose(browser, "#effort", "quick")
    browser.run("document.querySelector('#fit').focus()")
    browser.press("Enter")
    shown(browser, "#step-result")
    assert browser.run("document.activeElement.id") == "result-title"
    assert browser.run("document.querySelectorAll('#class-table tbody tr').length") == table[target].nunique()
    browser.run("document.querySelector('#report-button').click()")
    browser.choose_file("#score-file", tmp_path / f"new.{suffix}")
    browser.wait_until("document.querySelectorAll('#rows tbody tr').length === 50", 120)
    browser.run("document.querySelector('#rows tbody button').click()")
    browser.wait_until("document.querySelectorAll('#reasons li').length === 5", 60)
    browser.type_over("#save-name", "checked model")
    browser.run("document.querySelector('#save-form button').click()")
    browser.wait_until("document.querySelector('#saved-place').textContent.startsWith('Saved as')")
    browser.choose_file("#monitor-file", tmp_path / f"new.{suffix}")
    shown(browser, "#monitored")
    assert commands(browser) == [
        f"crcen look cases.{suffix} --target {target}",
        f"{first}crcen fit cases.{suffix} --target {target} {price} --quick --out model.crcen --report report.html",
        f"crcen predict model.crcen new.{suffix} --out scored.csv --all-columns",
        f"cp model.crcen '{tmp_path / 'saved' / 'checked model.crcen'}'",
        f"crcen monitor 'checked model.crcen' new.{suffix} --state 'checked model.monitor.json' --page monitor.html",
    ]
    # What the page shows is what predict_table gives with the saved model.
    wanted = crcen.predict_table(tmp_path / "saved" / "checked model.crcen", tmp_path / f"new.{suffix}").frame
    link = browser.run("document.querySelector('#get-csv').href")
    text = browser.run(f"fetch('{link}').then((answer) => answer.text())")
    (tmp_path / "got.csv").write_text(text)
    got = pd.read_csv(tmp_path / "got.csv")
    assert got["decision"].tolist() == wanted["decision"].tolist()
    for column in (one for one in wanted if one.startswith("probability")):
        assert got[column].tolist() == pytest.approx(wanted[column].tolist(), rel=1e-9)
    assert browser.run(UNLABELLED) == []
    for width in (390, 1280):
        browser.resize(width, 900)
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    # A second tab and a reload show the same project.
    identifier = browser.run("location.hash")
    requests, troubles = browser.requests(), browser.troubles()
    browser.open("about:blank")
    browser.open(server.address + identifier)
    browser.wait_until("document.querySelectorAll('#rows tbody tr').length === 50", 60)
    assert troubles + browser.troubles() == []
    local = server.address.partition("/?")[0]
    assert [one for one in requests + browser.requests() if not one.startswith((local, "data:", "about:"))] == []


def test_cancel_and_messages(start, chromium, tmp_path):
    binary_table().to_csv(tmp_path / "cases.csv", index=False)
    (tmp_path / "empty.csv").write_text("a,b\n")
    server = start("app", "--no-browser", "--folder", tmp_path)
    browser = chromium
    browser.open(server.address, 390, 844, dark=True)
    browser.choose_file("#table-file", tmp_path / "empty.csv")
    browser.wait_until("!document.querySelector('#message').hidden", 60)
    assert browser.run("document.querySelector('#message').textContent").endswith(".")
    browser.choose_file("#table-file", tmp_path / "cases.csv")
    shown(browser, "#step-goal")
    choose(browser, "#target", "fraud")
    shown(browser, "#classes")
    browser.run("document.querySelector('#fit').click()")
    browser.wait_until("!document.querySelector('#progress').hidden", 20)
    browser.wait_until("document.querySelector('#bar').hasAttribute('value')", 60)
    browser.run("document.querySelector('#cancel').click()")
    browser.wait_until("document.querySelector('#message').textContent.startsWith('The step was cancelled')", 30)
    assert browser.run("document.querySelector('#step-result').hidden")
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(18, 22, 27)"
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
